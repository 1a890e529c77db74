package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// useRedsyncBesideNative takes turns with native holders of the same key.
func useRedsyncBesideNative(client redis.UniversalClient) {
	ctx := context.Background()
	native := func(words ...any) any {
		answer, err := client.Do(ctx, words...).Result()
		must(err)
		return answer
	}
	field := func(answer any, name string) any {
		fields, isMap := answer.(map[any]any)
		if !isMap {
			fail("FAILED: no map: %v", answer)
		}
		return fields[name]
	}
	// isWaited says whether somebody waits for the lock in that way: queued, or polling.
	isWaited := func(how string) bool {
		for _, waiter := range native("LOCK.WAITERS", "stock").([]any) {
			if field(waiter, "how") == how {
				return true
			}
		}
		return false
	}
	pool := redsync.New(goredis.NewPool(client))
	mutex := pool.NewMutex("stock", redsync.WithExpiry(10*time.Second), redsync.WithTries(2000),
		redsync.WithRetryDelay(5*time.Millisecond))

	first := field(native("LOCK.ACQUIRE", "stock", "first", "LEASE", 10000), "token").(int64)
	check("what a native client holds is refused", mutex.TryLock() != nil)

	locked := make(chan error)
	go func() { locked <- mutex.Lock() }()
	until(func() bool { return isWaited("polling") })
	check("a release by a native client", native("LOCK.RELEASE", "stock", "first") == int64(1))
	must(<-locked)
	check("lets the next one have it", client.Get(ctx, "stock").Val() == mutex.Value())

	second := native("LOCK.TOKEN", "stock", mutex.Value()).(int64)
	check("its token is higher", second > first, first, second)
	holder := field(native("LOCK.WHO", "stock"), "holders").([]any)[0]
	library := field(field(holder, "client"), "lib-name").(string)
	isNamed := field(holder, "owner") == mutex.Value() && strings.HasPrefix(library, "go-redis")
	check("LOCK.WHO names it", isNamed, library)
	check("a native client is refused", client.Do(ctx, "LOCK.ACQUIRE", "stock", "heir").Err() == redis.Nil)
	refused := field(native("LOCK.ACQUIRE", "stock", "heir", "WHY"), "refused")
	check("and may ask why", field(refused, "holder") == mutex.Value(), refused)

	served := make(chan any)
	go func() { served <- native("LOCK.ACQUIRE", "stock", "heir", "LEASE", 10000, "WAIT", 2000) }()
	until(func() bool { return isWaited("queued") })
	released, err := mutex.Unlock()
	// One command later: nobody can have come between.
	heir := client.Get(ctx, "stock").Val()
	check("a native waiter has it as soon as it is released", released && heir == "heir", heir, err)
	third := field(<-served, "token").(int64)
	check("with a higher token", third > second, second, third)
	check("and it is refused again", mutex.TryLock() != nil)
	check("until it is released", native("LOCK.RELEASE", "stock", "heir") == int64(1) && mutex.TryLock() == nil)
	check("its lock is released by its value", native("LOCK.RELEASE", "stock", mutex.Value()) == int64(1))
	released, err = mutex.Unlock()
	check("which it learns", !released, err)
}

// until waits for something to become true. The run's own limit is that of the wait.
func until(truth func() bool) {
	for !truth() {
		time.Sleep(5 * time.Millisecond)
	}
}
