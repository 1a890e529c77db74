package compare

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// FastForward shortens the leases. It moves neither TIME, which has a clock of its own (SetTime), nor the timeouts of clients that
// wait in the server.
func TestMiniredis(t *testing.T) {
	stopwatch := newStopwatch()
	server := miniredis.RunT(t)
	stopwatch.print("start")
	var locks []*redsync.Mutex
	for range 2 {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		locks = append(locks, redsync.New(goredis.NewPool(client)).NewMutex("stock", redsync.WithExpiry(30*time.Second)))
	}
	first, second := locks[0], locks[1]

	if err := first.TryLock(); err != nil {
		t.Fatal(err)
	}
	if second.TryLock() == nil {
		t.Fatal("two holders")
	}
	server.FastForward(31 * time.Second)
	if err := second.TryLock(); err != nil {
		t.Fatal(err)
	}
	if ok, err := first.Unlock(); ok || err == nil {
		t.Fatal("released the lock of another holder")
	}
	stopwatch.print("body")
}
