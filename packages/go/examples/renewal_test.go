package examples

import (
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

func TestARenewalThatIsLost(t *testing.T) {
	redlatch := redlatchtest.Run(t).Namespace(t)
	// With retries, go-redis would send the lost request again.
	options := redis.Options{Addr: redlatch.Addr(), Password: redlatch.Password(), MaxRetries: -1}
	client := redis.NewClient(&options)
	defer client.Close()
	locks := redsync.New(goredis.NewPool(client))
	held := locks.NewMutex("stock", redsync.WithExpiry(30*time.Second))
	next := locks.NewMutex("stock", redsync.WithTries(1))

	redlatch.Clock().Freeze()
	if err := held.Lock(); err != nil {
		t.Fatal(err)
	}
	redlatch.Clock().Advance(20 * time.Second)
	fault := redlatch.Faults().DropBefore(redlatchtest.Where{Script: "extend"})
	if extended, err := held.Extend(); extended || err == nil || fault.Hits() != 1 {
		t.Fatal(extended, err, fault.Hits())
	}

	// The lease was not renewed, so another one gets the lock, and the first cannot release it.
	redlatch.Clock().Advance(10*time.Second + time.Millisecond)
	if err := next.TryLock(); err != nil {
		t.Fatal(err)
	}
	if released, _ := held.Unlock(); released {
		t.Fatal("released the lock of another one")
	}
}
