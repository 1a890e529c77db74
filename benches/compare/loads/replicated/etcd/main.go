// Takes locks of etcd as its own Go client does, with clientv3/concurrency.
//
// Its argument names the endpoints. A line of its input is a turn: `acquire`, `cycle` or `commit`, clients, seconds. It answers
// `ready` when all clients have connected; when the time is over, the operations, the seconds that they took, and the median and
// the 99th percentile of one in microseconds; `done` when no lock is left.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var value = strings.Repeat("x", 100)

func main() {
	endpoints := strings.Split(os.Args[1], ",")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var load string
		var clients int
		var seconds float64
		must(fmt.Sscan(lines.Text(), &load, &clients, &seconds))
		turn(endpoints, load, clients, time.Duration(seconds*float64(time.Second)))
		fmt.Println("done")
	}
}

func turn(endpoints []string, load string, clients int, duration time.Duration) {
	sessions := make([]*concurrency.Session, clients)
	for i := range sessions {
		// Each client has a connection and a lease of its own; they are spread over the members.
		client := must(clientv3.New(clientv3.Config{Endpoints: []string{endpoints[i%len(endpoints)]}}))
		defer client.Close()
		sessions[i] = must(concurrency.NewSession(client))
		defer sessions[i].Close()
	}
	fmt.Println("ready")

	begun := time.Now()
	taken := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for i, session := range sessions {
		all.Go(func() {
			for n := 0; time.Since(begun) < duration; n++ {
				start := time.Now()
				operate(session, load, fmt.Sprintf("/lock/%d/%d", i, n))
				taken[i] = append(taken[i], time.Since(start))
			}
		})
	}
	all.Wait()
	elapsed := time.Since(begun)
	times := slices.Sorted(slices.Values(slices.Concat(taken...)))
	at := func(part float64) int64 { return times[int(part*float64(len(times)-1))].Microseconds() }
	fmt.Println(len(times), elapsed.Seconds(), at(0.5), at(0.99))
}

func operate(session *concurrency.Session, load string, key string) {
	ctx := context.Background()
	if load == "commit" {
		must(session.Client().Put(ctx, key, value))
		return
	}
	mutex := concurrency.NewMutex(session, key)
	check(mutex.Lock(ctx))
	if load == "cycle" {
		check(mutex.Unlock(ctx))
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
