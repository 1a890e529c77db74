// Command locks runs one Go lock client against the server that the environment names.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	lease   = 200 * time.Millisecond
	workers = 4
	rounds  = 15
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == "sentinel" {
		useSentinel(os.Args[2:])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "history" {
		useInHistory()
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "channels" {
		useChannels()
		return
	}
	clients := map[string]func(redis.UniversalClient){
		"redislock": useRedislock, "rueidislock": useRueidislock,
		"redsync": useRedsync, "redsync-native": useRedsyncBesideNative, "redsync-redigo": useRedsyncOnRedigo, "redsync-rueidis": useRedsyncOnRueidis,
	}
	if len(os.Args) != 2 {
		fail("one argument, the name of a client")
	}
	name, isInCluster := strings.CutSuffix(os.Args[1], "-cluster")
	use := clients[name]
	if use == nil {
		fail("no such client")
	}
	client := connect(isInCluster)
	defer client.Close()
	use(client)
	fmt.Println("done")
}

// connect returns a client of the server, or of the cluster whose nodes share the slots.
func connect(isInCluster bool) redis.UniversalClient {
	if !isInCluster {
		return redis.NewClient(&redis.Options{Addr: address()})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address()}})
	slots, err := client.ClusterSlots(context.Background()).Result()
	must(err)
	ports := strings.Split(os.Getenv("REDLATCH_PORTS"), ",")
	for _, owned := range slots {
		_, port, err := net.SplitHostPort(owned.Nodes[0].Addr)
		must(err)
		check("the nodes are those that share the slots", len(slots) == len(ports) && slices.Contains(ports, port), slots)
	}
	return client
}

// address is where the server listens.
func address() string {
	return net.JoinHostPort(os.Getenv("REDLATCH_HOST"), os.Getenv("REDLATCH_PORT"))
}

// check prints `ok <name>`, or ends the program with what was seen.
func check(name string, truth bool, seen ...any) {
	if !truth {
		fail("FAILED %s: %v", name, seen)
	}
	fmt.Println("ok", name)
}

// must ends the program if err is not nil.
func must(err error) {
	if err != nil {
		fail("FAILED: %v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

// race runs roundOf(critical) in several goroutines; it must call critical under the lock. The counter inside
// loses updates unless its users exclude each other. It is guarded by a mutex per access, so that only a lock
// makes the two halves of an update one.
func race(roundOf func(critical func())) {
	var guard sync.Mutex
	var count, inside, overlaps int
	critical := func() {
		guard.Lock()
		inside++
		if inside > 1 {
			overlaps++
		}
		seen := count
		guard.Unlock()
		time.Sleep(time.Millisecond)
		guard.Lock()
		count = seen + 1
		inside--
		guard.Unlock()
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for range rounds {
				roundOf(critical)
			}
		})
	}
	running.Wait()
	check("workers never overlap", overlaps == 0, overlaps)
	check("no update is lost", count == workers*rounds, count)
}
