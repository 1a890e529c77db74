// Programs that take a lock, add one to a counter, and release the lock: one for each library, chosen by its name.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const lease = 10 * time.Second

func main() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err == nil && os.Args[1] == "orders" {
		err = shipOrders(options, strings.Join(os.Args[2:], ""))
	} else if err == nil {
		programs := map[string]func(*redis.Client) error{
			"redsync": useRedsync, "redislock": useRedislock, "rueidislock": useRueidislock,
		}
		err = programs[os.Args[1]](redis.NewClient(options))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func work(client *redis.Client) error {
	return client.Incr(context.Background(), "paid").Err()
}

func useRedsync(client *redis.Client) error {
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("orders", redsync.WithExpiry(lease))
	if err := mutex.Lock(); err != nil {
		return err
	}
	if err := work(client); err != nil {
		return err
	}
	_, err := mutex.Unlock()
	return err
}

func useRedislock(client *redis.Client) error {
	ctx := context.Background()
	lock, err := redislock.New(client).Obtain(ctx, "orders", lease, nil)
	if err != nil {
		return err
	}
	if err := work(client); err != nil {
		return err
	}
	return lock.Release(ctx)
}

func useRueidislock(client *redis.Client) error {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{client.Options().Addr}},
		KeyValidity:  lease,
		// Of a majority of several keys the loss of one is no loss.
		KeyMajority: 1,
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	ctx, release, err := locker.WithContext(context.Background(), "orders")
	if err != nil {
		return err
	}
	defer release()
	if err := work(client); err != nil {
		return err
	}
	return ctx.Err()
}
