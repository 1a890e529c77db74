// redsync 4.0.3: `Lock` and `Unlock`.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-redis/redis/v8"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v8"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("orders", redsync.WithExpiry(10*time.Second))
	if err := mutex.Lock(); err != nil {
		return err
	}
	if err := client.Incr(context.Background(), "paid").Err(); err != nil {
		return err
	}
	if isReleased, err := mutex.Unlock(); !isReleased || err != nil {
		return fmt.Errorf("unlock: %t, %w", isReleased, err)
	}
	return nil
}
