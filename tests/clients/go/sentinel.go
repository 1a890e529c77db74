package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// useSentinel holds a lock of redsync, in Sentinel mode, while the test of a cluster ends the node that has granted it.
func useSentinel(ports []string) {
	var nodes []string
	for _, port := range ports {
		nodes = append(nodes, net.JoinHostPort("127.0.0.1", port))
	}
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: nodes})
	defer client.Close()
	locks := redsync.New(goredis.NewPool(client))
	options := []redsync.Option{redsync.WithExpiry(time.Minute), redsync.WithTries(1)}
	mine, other := locks.NewMutex("by-sentinel", options...), locks.NewMutex("by-sentinel", options...)

	must(mine.Lock())
	fmt.Println("holds")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(err)
	check("its owner still holds it", extends(mine))
	info := client.Info(context.Background(), "server").Val()
	fmt.Println("still", regexp.MustCompile(`tcp_port:(\d+)`).FindStringSubmatch(info)[1])
	var taken *redsync.ErrTaken
	err = other.Lock()
	check("another is refused", errors.As(err, &taken), err)
	released, err := mine.Unlock()
	check("release", released, err)
	must(other.Lock())
}

// extends asks until there is an answer, for a minute.
func extends(mutex *redsync.Mutex) bool {
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		extended, err := mutex.Extend()
		if err == nil {
			return extended
		}
		if time.Since(begun) > time.Minute {
			fail("FAILED: %v", err)
		}
	}
}
