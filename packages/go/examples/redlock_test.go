package examples

import (
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

func TestRedlockWithCrashedNodes(t *testing.T) {
	redlatch := redlatchtest.Run(t, redlatchtest.Nodes(5)).Namespace(t)
	var pools []redsyncpool.Pool
	for _, url := range redlatch.URLs() {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		defer client.Close()
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	held := locks.NewMutex("stock", redsync.WithExpiry(30*time.Second))
	next := locks.NewMutex("stock", redsync.WithTries(1))

	redlatch.Clock().Freeze()
	if err := held.Lock(); err != nil {
		t.Fatal(err)
	}
	redlatch.Nodes().Crash(1)
	redlatch.Nodes().Crash(2)
	if extended, err := held.Extend(); !extended { // three of five still know the lock
		t.Fatal(err)
	}
	if next.TryLock() == nil {
		t.Fatal("two holders")
	}

	redlatch.Nodes().Crash(3)
	if extended, _ := held.Extend(); extended { // two are no majority
		t.Fatal("extended without a majority")
	}
	redlatch.Clock().Advance(30*time.Second + time.Millisecond)
	if next.TryLock() == nil {
		t.Fatal("locked without a majority")
	}
}
