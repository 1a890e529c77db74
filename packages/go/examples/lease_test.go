package examples

import (
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

func TestALeaseEndsWithoutSleep(t *testing.T) {
	redlatch := redlatchtest.Run(t).Namespace(t)
	client := redis.NewClient(&redis.Options{Addr: redlatch.Addr(), Password: redlatch.Password()})
	defer client.Close()
	locks := redsync.New(goredis.NewPool(client))
	crashed := locks.NewMutex("stock", redsync.WithExpiry(30*time.Second))
	next := locks.NewMutex("stock", redsync.WithTries(1))

	redlatch.Clock().Freeze()
	if err := crashed.Lock(); err != nil {
		t.Fatal(err)
	}
	redlatch.Clock().Advance(30 * time.Second) // the last millisecond of the lease
	if next.TryLock() == nil {
		t.Fatal("two holders")
	}
	redlatch.Clock().Advance(time.Millisecond)
	if err := next.TryLock(); err != nil {
		t.Fatal(err)
	}
}
