package examples

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"redlatch.dev/redlatchtest"
)

// worker takes the lock stock, and writes what the lock protects, which refuses a token that is lower than one it has seen.
type worker struct {
	client *redis.Client
	mutex  *redsync.Mutex
}

func newWorker(redlatch *redlatchtest.Namespace, name string) worker {
	client := redis.NewClient(&redis.Options{
		Addr: redlatch.Addr(), Password: redlatch.Password(), ClientName: name, PoolSize: 1,
	})
	locks := redsync.New(goredis.NewPool(client))
	return worker{client, locks.NewMutex("stock", redsync.WithExpiry(30*time.Second))}
}

func (worker worker) token() (int64, error) {
	return worker.client.Do(context.Background(), "LOCK.TOKEN", "stock", worker.mutex.Value()).Int64()
}

func (worker worker) write(token int64) error {
	return worker.client.Do(context.Background(), "LOCK.GUARD", "stock:file", token).Err()
}

func TestAHolderThatPausesPastItsLeaseIsStoppedByItsToken(t *testing.T) {
	redlatch := redlatchtest.Run(t).Namespace(t)
	slow, other := newWorker(redlatch, "slow"), newWorker(redlatch, "other")
	defer slow.client.Close()
	defer other.client.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	redlatch.Clock().Freeze()
	redlatch.Faults().PauseClient(time.Minute, redlatchtest.Where{Client: "slow", Command: "LOCK.TOKEN"})
	must(slow.mutex.Lock())
	token, err := slow.token()
	must(err)
	late := make(chan error)
	go func() { late <- slow.write(token) }() // it pauses here, and believes that it holds the lock

	redlatch.Clock().Advance(30*time.Second + time.Millisecond)
	must(other.mutex.Lock())
	token, err = other.token()
	must(err)
	must(other.write(token))

	redlatch.Clock().Advance(30 * time.Second) // the pause ends
	if err := <-late; err == nil || !strings.HasPrefix(err.Error(), "STALE") {
		t.Fatal("the late write was not refused: ", err)
	}
}
