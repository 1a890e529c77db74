package tests

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
	"redlatch.dev/redlatchtest"
)

// What a lock costs this process: acquire and release through the client, beside SET NX PX and EVALSHA by go-redis
// alone, in turn. Microseconds of CPU time of this process for a pair, the median of the rounds. It checks nothing,
// and runs only when asked for:
//
//	REDLATCH_MEASURE=1 go test -count=1 -v -run TestMeasure .

const (
	pairs  = 500
	rounds = 101
)

func TestMeasure(t *testing.T) {
	if os.Getenv("REDLATCH_MEASURE") == "" {
		t.Skip("REDLATCH_MEASURE is not set")
	}
	// A server without test commands, which writes down no history.
	process := startProcess(t, redlatchProgram(t), "--port", "0", "--unixsocket", "SOCKET")
	client := redis.NewClient(process.options())
	defer client.Close()
	l := locks.New(client)
	defer l.Close()
	var bare, ours []time.Duration
	for range rounds {
		bare = append(bare, measured(t, func() { takeBare(t, client) }))
		ours = append(ours, measured(t, func() { takeOurs(t, l) }))
	}
	slices.Sort(bare)
	slices.Sort(ours)
	alone, through := bare[rounds/2], ours[rounds/2]
	t.Logf("go-redis %v, redlatch.dev/locks %v, %.2f of go-redis", alone, through, float64(through)/float64(alone))
}

// measured is the CPU time of one pair.
func measured(t *testing.T, work func()) time.Duration {
	before := cpuTime(t)
	work()
	return (cpuTime(t) - before) / pairs
}

func cpuTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func takeBare(t *testing.T, client *redis.Client) {
	ctx := context.Background()
	release := redis.NewScript("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0")
	for range pairs {
		owner := randomOwner(t)
		if isSet, err := client.SetNX(ctx, "lock:bare", owner, 30*time.Second).Result(); err != nil || !isSet {
			t.Fatal(isSet, err)
		}
		if count, err := release.Run(ctx, client, []string{"lock:bare"}, owner).Int(); err != nil || count != 1 {
			t.Fatal(count, err)
		}
	}
}

func takeOurs(t *testing.T, l *locks.Locks) {
	ctx := context.Background()
	lock := l.Lock("lock:ours", locks.Options{})
	for range pairs {
		held, err := lock.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if wasHeld, err := held.Release(ctx); err != nil || !wasHeld {
			t.Fatal(wasHeld, err)
		}
	}
}

// TestMeasureRequestsWhileWaiting: a wait sends nothing.
func TestMeasureRequestsWhileWaiting(t *testing.T) {
	if os.Getenv("REDLATCH_MEASURE") == "" {
		t.Skip("REDLATCH_MEASURE is not set")
	}
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	take(t, l, "k", locks.Options{NoRenewal: true})
	_, _ = l.Lock("k", locks.Options{Wait: 5 * time.Second}).Acquire(context.Background())
	t.Logf("in a wait of 5 s that ends with a refusal: %v", namespace.Calls(redlatchtest.Filter{}))
}

func randomOwner(t *testing.T) string {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(random)
}
