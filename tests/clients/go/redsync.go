package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	rueidispool "github.com/go-redsync/redsync/v4/redis/rueidis"
	redigoclient "github.com/gomodule/redigo/redis"
	goredisclient "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// useRedsync does what users of redsync do, on go-redis.
func useRedsync(client goredisclient.UniversalClient) {
	useRedsyncOn(client, goredis.NewPool(client))
}

// useRedsyncOnRedigo does the same on redigo.
func useRedsyncOnRedigo(client goredisclient.UniversalClient) {
	dial := func() (redigoclient.Conn, error) { return redigoclient.Dial("tcp", address()) }
	pool := &redigoclient.Pool{MaxIdle: workers, Dial: dial}
	defer pool.Close()
	useRedsyncOn(client, redigo.NewPool(pool))
}

// useRedsyncOnRueidis does the same on rueidis.
func useRedsyncOnRueidis(client goredisclient.UniversalClient) {
	connection, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address()}})
	must(err)
	defer connection.Close()
	useRedsyncOn(client, rueidispool.NewPool(rueidiscompat.NewAdapter(connection)))
}

// useRedsyncOn looks at the server through client, and locks through connections.
func useRedsyncOn(client goredisclient.UniversalClient, connections redis.Pool) {
	ctx := context.Background()
	pool := redsync.New(connections)
	mutex := func(name string, options ...redsync.Option) *redsync.Mutex {
		patience := []redsync.Option{
			redsync.WithExpiry(10 * time.Second), redsync.WithTries(2000),
			redsync.WithRetryDelay(5 * time.Millisecond),
		}
		return pool.NewMutex(name, append(patience, options...)...)
	}
	isTaken := func(err error) bool {
		var taken *redsync.ErrTaken
		return errors.As(err, &taken)
	}

	first, second := mutex("stock"), mutex("stock")
	must(first.Lock())
	check("acquire", client.Get(ctx, "stock").Val() == first.Value())
	err := second.TryLock()
	check("contended acquire is refused", isTaken(err), err)
	stranger := mutex("stock", redsync.WithValue("not the holder's"))
	released, err := stranger.Unlock()
	check("release by a non-owner is refused", !released, err)
	extended, err := stranger.Extend()
	check("extend by a non-owner is refused", !extended, err)
	check("the owner still holds it", client.Get(ctx, "stock").Val() == first.Value())

	must(client.PExpire(ctx, "stock", time.Second).Err())
	extended, err = first.Extend()
	ttl := client.PTTL(ctx, "stock").Val()
	check("extend takes the lease anew", extended && ttl > 9*time.Second, ttl, err)
	valid, err := first.Valid()
	check("the holder finds it valid", valid, err)

	time.AfterFunc(50*time.Millisecond, func() { _, _ = first.Unlock() })
	must(second.Lock())
	check("contended acquire waits for the release", client.Get(ctx, "stock").Val() == second.Value())
	released, err = second.Unlock()
	check("release", released && client.Exists(ctx, "stock").Val() == 0, err)
	released, err = second.Unlock()
	isExpired := errors.Is(err, redsync.ErrLockAlreadyExpired)
	check("a second release says that it expired", !released && isExpired, err)

	start := time.Now()
	lapsed, heir := mutex("lease", redsync.WithExpiry(lease)), mutex("lease")
	must(lapsed.Lock())
	must(heir.Lock())
	check("expiry hands over, not before the lease ended", time.Since(start) >= lease, time.Since(start))
	released, err = lapsed.Unlock()
	check("the lapsed holder cannot release", !released, err)
	check("the heir still holds it", client.Get(ctx, "lease").Val() == heir.Value())
	extended, err = lapsed.Extend()
	check("the lapsed holder cannot extend", !extended, err)

	revived := mutex("revived", redsync.WithSetNXOnExtend())
	must(revived.Lock())
	must(client.Del(ctx, "revived").Err())
	extended, err = revived.Extend()
	check("extend may take a lapsed lock again", extended && client.Exists(ctx, "revived").Val() == 1, err)

	race(func(critical func()) {
		lock := mutex("race")
		must(lock.Lock())
		critical()
		released, err := lock.Unlock()
		must(err)
		if !released {
			fail("FAILED: a holder could not release")
		}
	})
}
