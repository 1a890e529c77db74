package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Long enough for none of a wait's ends to be the client's own second look at the key.
const validity = 10 * time.Second

// useRueidislock does what users of rueidislock do: with client-side caching, in which a waiter sleeps until the
// server says that a key has changed, with NOLOOP, and without it.
func useRueidislock(client redis.UniversalClient) {
	tracking := func(option *rueidislock.LockerOption) {}
	noloop := func(option *rueidislock.LockerOption) { option.NoLoopTracking = true }
	polling := func(option *rueidislock.LockerOption) {
		option.ClientOption.DisableCache = true
		option.FallbackSETPX = true
		option.KeyValidity = time.Second
	}
	lockOnRueidis(client, "tracking", tracking)
	lockOnRueidis(client, "noloop", noloop)
	lockOnRueidis(client, "polling", polling)
	expiryIsPushed(client)
}

// newLocker is one process that locks: waiters of the same locker stand in line inside it.
func newLocker(name string, mode func(*rueidislock.LockerOption)) rueidislock.Locker {
	option := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address()}},
		KeyPrefix:    name,
		KeyValidity:  validity,
		// A machine under load must not make the lock look lost.
		TryNextAfter: time.Second,
	}
	mode(&option)
	locker, err := rueidislock.NewLocker(option)
	must(err)
	return locker
}

func lockOnRueidis(client redis.UniversalClient, name string, mode func(*rueidislock.LockerOption)) {
	ctx := context.Background()
	here, there := newLocker(name, mode), newLocker(name, mode)
	defer here.Close()
	defer there.Close()

	held, release, err := here.WithContext(ctx, "stock")
	must(err)
	keys := keysOf(client, name)
	check(name+": acquire a majority of three keys", held.Err() == nil && keys >= 2, keys)
	_, _, err = there.TryWithContext(ctx, "stock")
	check(name+": contended acquire is refused", errors.Is(err, rueidislock.ErrNotLocked), err)
	brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	_, _, err = there.WithContext(brief, "stock")
	cancel()
	check(name+": a wait that is too short is refused", errors.Is(err, context.DeadlineExceeded), err)

	start := time.Now()
	time.AfterFunc(200*time.Millisecond, release)
	second, releaseSecond, err := there.WithContext(ctx, "stock")
	must(err)
	waited := time.Since(start)
	isPrompt := waited >= 200*time.Millisecond && waited < 5*time.Second
	check(name+": contended acquire waits for the release", isPrompt, waited)
	check(name+": a release ends the holder's context", errors.Is(held.Err(), context.Canceled), held.Err())
	check(name+": the next holder's goes on", second.Err() == nil)

	robber, releaseRobber, err := here.ForceWithContext(ctx, "stock")
	must(err)
	select {
	case <-second.Done():
		check(name+": who is robbed is told", robber.Err() == nil)
	case <-time.After(validity):
		fail("FAILED %s: who is robbed is not told", name)
	}
	releaseSecond()
	check(name+": and cannot release what it lost", robber.Err() == nil)
	_, _, err = there.TryWithContext(ctx, "stock")
	check(name+": the robber holds it", errors.Is(err, rueidislock.ErrNotLocked), err)
	releaseRobber()
	is := func() bool { return keysOf(client, name) == 0 }
	check(name+": release", becomes(is))

	raceOnRueidis(name, here, there)
}

// keysOf counts the keys that are there, of the three that a lock has. In cluster mode each has a slot of its own.
func keysOf(client redis.UniversalClient, name string) int64 {
	var count int64
	for number := range 3 {
		found, err := client.Exists(context.Background(), fmt.Sprintf("%s:%d:stock", name, number)).Result()
		must(err)
		count += found
	}
	return count
}

// raceOnRueidis lets two processes race, each with several goroutines. With NOLOOP each has one: a process is not told
// then of what it has let go itself, and its own goroutines can wait for that for ever, on a real server too.
func raceOnRueidis(name string, lockers ...rueidislock.Locker) {
	count := workers
	if name == "noloop" {
		count = len(lockers)
	}
	turns := make(chan rueidislock.Locker, count)
	for turn := range count {
		turns <- lockers[turn%len(lockers)]
	}
	race(func(critical func()) {
		locker := <-turns
		defer func() { turns <- locker }()
		_, release, err := locker.WithContext(context.Background(), "race")
		must(err)
		critical()
		release()
	})
}

// expiryIsPushed: a holder has died. The waiter asks once, and then hears of the end of the lease from the server
// alone.
func expiryIsPushed(client redis.UniversalClient) {
	ctx := context.Background()
	heir := newLocker("orphan", func(option *rueidislock.LockerOption) {})
	defer heir.Close()
	start := time.Now()
	for _, key := range []string{"orphan:0:stock", "orphan:1:stock", "orphan:2:stock"} {
		must(client.Set(ctx, key, "the dead", 4*lease).Err())
	}
	held, release, err := heir.WithContext(ctx, "stock")
	must(err)
	waited := time.Since(start)
	isPrompt := waited >= 4*lease && waited < validity
	check("expiry hands over, not before the lease ended", held.Err() == nil && isPrompt, waited)
	release()
}

// becomes waits until something holds, for ten seconds at most.
func becomes(truth func() bool) bool {
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if truth() {
			return true
		}
	}
	return false
}
