package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// useRedislock does what users of bsm/redislock do, on go-redis.
func useRedislock(client redis.UniversalClient) {
	ctx := context.Background()
	locker := redislock.New(client)
	patient := &redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}
	obtain := func(key string, ttl time.Duration, options *redislock.Options) *redislock.Lock {
		lock, err := locker.Obtain(ctx, key, ttl, options)
		must(err)
		return lock
	}

	first := obtain("stock", 10*time.Second, &redislock.Options{Metadata: "first"})
	check("acquire", client.Get(ctx, "stock").Val() == first.Token()+"first")
	ttl, err := first.TTL(ctx)
	check("what is left", err == nil && ttl > 9*time.Second && ttl <= 10*time.Second, ttl, err)
	_, err = locker.Obtain(ctx, "stock", 10*time.Second, nil)
	check("contended acquire is refused", errors.Is(err, redislock.ErrNotObtained), err)
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	_, err = locker.Obtain(brief, "stock", 10*time.Second, patient)
	cancel()
	// The context may end between two attempts or during one.
	isRefused := errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded)
	check("a wait that is too short is refused", isRefused, err)

	must(first.Refresh(ctx, 20*time.Second, nil))
	ttl, err = first.TTL(ctx)
	check("extend takes the lease anew", err == nil && ttl > 19*time.Second, ttl, err)
	again := obtain("stock", 15*time.Second, &redislock.Options{Token: first.Token(), Metadata: "again"})
	check("the same token obtains it again", client.Get(ctx, "stock").Val() == first.Token()+"again")

	time.AfterFunc(50*time.Millisecond, func() { _ = again.Release(ctx) })
	second := obtain("stock", 10*time.Second, patient)
	check("contended acquire waits for the release", client.Get(ctx, "stock").Val() == second.Token())
	err = first.Release(ctx)
	check("release by a non-owner is refused", errors.Is(err, redislock.ErrLockNotHeld), err)
	err = first.Refresh(ctx, time.Minute, nil)
	check("extend by a non-owner is refused", errors.Is(err, redislock.ErrNotObtained), err)
	must(second.Release(ctx))
	check("release", client.Exists(ctx, "stock").Val() == 0)
	err = second.Release(ctx)
	check("a second release is refused", errors.Is(err, redislock.ErrLockNotHeld), err)
	ttl, err = second.TTL(ctx)
	check("nothing is left", err == nil && ttl == 0, ttl, err)

	both, err := locker.ObtainMulti(ctx, []string{"{pair}left", "{pair}right"}, 10*time.Second, nil)
	must(err)
	check("one lock on two keys", client.Exists(ctx, "{pair}left", "{pair}right").Val() == 2)
	_, err = locker.ObtainMulti(ctx, []string{"{pair}right", "{pair}third"}, 10*time.Second, nil)
	check("either is held", errors.Is(err, redislock.ErrNotObtained), err)
	check("a refusal takes nothing", client.Exists(ctx, "{pair}third").Val() == 0)
	must(both.Release(ctx))
	check("both are released", client.Exists(ctx, "{pair}left", "{pair}right").Val() == 0)

	start := time.Now()
	lapsed := obtain("lease", lease, nil)
	heir := obtain("lease", 10*time.Second, patient)
	check("expiry hands over, not before the lease ended", time.Since(start) >= lease, time.Since(start))
	err = lapsed.Release(ctx)
	check("the lapsed holder cannot release", errors.Is(err, redislock.ErrLockNotHeld), err)
	check("the heir still holds it", client.Get(ctx, "lease").Val() == heir.Token())

	race(func(critical func()) {
		lock := obtain("race", 10*time.Second, patient)
		critical()
		must(lock.Release(ctx))
	})
}
