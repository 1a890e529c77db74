package tests

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
	"redlatch.dev/redlatchtest"
)

// What the scenarios do not say: many goroutines at once, cancellation, contexts, missing rights, ends.

// newLocks are locks over a client of the namespace, which end with the test.
func newLocks(t testing.TB, namespace *redlatchtest.Namespace) *locks.Locks {
	client := redis.NewClient(optionsOf(namespace))
	made := locks.New(client)
	t.Cleanup(func() {
		made.Close()
		_ = client.Close()
	})
	return made
}

func TestACallEndsAtItsBudgetWhileANameIsLookedUp(t *testing.T) {
	ended := make(chan struct{})
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		<-ended
		return nil, net.ErrClosed
	}})
	made := locks.New(client, locks.Budget(300*time.Millisecond))
	t.Cleanup(func() {
		made.Close()
		_ = client.Close()
	})
	// The lookup ends by itself.
	defer close(ended)
	for _, options := range []locks.Options{{}, {Wait: 500 * time.Millisecond}, {Session: true}} {
		begun := time.Now()
		_, err := made.Lock("k", options).Acquire(context.Background())
		if took := time.Since(begun); !errors.Is(err, locks.ErrUnreachable) || took > patience/4 {
			t.Errorf("%v, after %v", err, took)
		}
	}
}

func take(t testing.TB, l *locks.Locks, key string, options locks.Options) *locks.Held {
	t.Helper()
	held, err := l.Lock(key, options).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// holderOf is who holds a key.
func holderOf(t testing.TB, l *locks.Locks, key string) *locks.Holder {
	t.Helper()
	holder, err := l.LockedBy(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return holder
}

// do sends a command beside the client under test.
func do(t testing.TB, namespace *redlatchtest.Namespace, words ...any) any {
	t.Helper()
	reply, err := namespace.Call(words...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// untilLost returns when the lock is lost.
func untilLost(t testing.TB, held *locks.Held) {
	t.Helper()
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Fatal("it is not lost")
	}
}

// takes is how often each of fifty contenders takes the lock: REDLATCH_TAKES=1000 for a long run.
func takes() int {
	if count, err := strconv.Atoi(os.Getenv("REDLATCH_TAKES")); err == nil {
		return count
	}
	return 40
}

func TestFiftyGoroutinesExcludeEachOther(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	lock := l.Lock("k", locks.Options{Wait: 10 * patience})
	var tokens []int64
	users, doubles := 0, 0
	var all sync.WaitGroup
	for range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range takes() {
				held, err := lock.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				// Without a lock of their own: the race detector watches, too.
				users++
				if users != 1 {
					doubles++
				}
				tokens = append(tokens, held.Token())
				users--
				if wasHeld, err := held.Release(context.Background()); err != nil || !wasHeld {
					t.Error(wasHeld, err)
				}
			}
		}()
	}
	all.Wait()
	unique := len(slices.Compact(slices.Clone(tokens)))
	t.Logf("%d takes, %d doubles, tokens from %d to %d", len(tokens), doubles, tokens[0], tokens[len(tokens)-1])
	if len(tokens) != 50*takes() || doubles != 0 || !slices.IsSorted(tokens) || unique != len(tokens) {
		t.Fatal(len(tokens), doubles, unique)
	}
}

func TestAWaitIsOneRequest(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	held := take(t, l, "k", locks.Options{})
	done := make(chan error)
	go func() {
		next, err := l.Lock("k", locks.Options{Wait: patience}).Acquire(context.Background())
		if err == nil {
			_, err = next.Release(context.Background())
		}
		done <- err
	}()
	// So long a client that polls has asked many times.
	await(t, func() bool {
		waited, _ := do(t, namespace, "LOCK.WHO", "k").(map[string]any)["waited"].(int64)
		return waited >= 200
	})
	_, _ = held.Release(context.Background())
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if count := namespace.Calls(redlatchtest.Filter{})["LOCK.ACQUIRE"]; count != 2 {
		t.Fatal(count)
	}
}

func TestAWaitTakesNoConnectionOfThePool(t *testing.T) {
	namespace := server.Namespace(t)
	options := optionsOf(namespace)
	options.PoolSize = 1
	client := redis.NewClient(options)
	defer client.Close()
	l := locks.New(client)
	defer l.Close()
	held := take(t, l, "k", locks.Options{})
	done := make(chan error)
	for range 3 {
		go func() {
			next, err := l.Lock("k", locks.Options{Wait: patience}).Acquire(context.Background())
			if err == nil {
				_, err = next.Release(context.Background())
			}
			done <- err
		}()
	}
	await(t, func() bool { return holderOf(t, l, "k").Waiters == 3 })
	_, _ = held.Release(context.Background())
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestACancelledWaitLeavesTheQueue(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	held := take(t, l, "k", locks.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := l.Lock("k", locks.Options{Wait: locks.Forever}).Acquire(ctx)
		done <- err
	}()
	await(t, func() bool { return holderOf(t, l, "k").Waiters == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	await(t, func() bool { return holderOf(t, l, "k").Waiters == 0 })
	_, _ = held.Release(context.Background())
	if holder := holderOf(t, l, "k"); holder != nil {
		t.Fatal(holder)
	}
}

func TestTheDeadlineOfAContextEndsAWait(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	take(t, l, "k", locks.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Lock("k", locks.Options{Wait: patience}).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestWhatWasGrantedToACancelledAcquisitionIsGivenUp(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	// The lock is granted, and the answer does not come before the cancellation.
	fault := namespace.Faults().Stall(patience, redlatchtest.Where{Command: "LOCK.ACQUIRE", Times: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := l.Lock("k", locks.Options{Wait: patience}).Acquire(ctx)
		done <- err
	}()
	await(t, func() bool { return fault.Hits() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	await(t, func() bool { return holderOf(t, l, "k") == nil })
}

func TestDoTellsThatItsLockWasLost(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	var lost *locks.LostError
	err := l.Lock("k", locks.Options{}).Do(context.Background(), func(ctx context.Context, held *locks.Held) error {
		do(t, namespace, "LOCK.BREAK", "k", "TOKEN", held.Token())
		<-ctx.Done()
		if !errors.As(context.Cause(ctx), &lost) || lost.Token != held.Token() {
			t.Error(context.Cause(ctx))
		}
		return ctx.Err()
	})
	if !errors.Is(err, locks.ErrLost) {
		t.Fatal(err)
	}
}

func TestALossThatOnlyTheReleaseFindsIsTheErrorOfDo(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	err := l.Lock("k", locks.Options{}).Do(context.Background(), func(context.Context, *locks.Held) error {
		do(t, namespace, "DEL", "k")
		return nil
	})
	if !errors.Is(err, locks.ErrLost) {
		t.Fatal(err)
	}
}

func TestTheErrorOfDoIsThatOfTheWork(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	failed := errors.New("the work has failed")
	err := l.Lock("k", locks.Options{}).Do(context.Background(), func(_ context.Context, held *locks.Held) error {
		do(t, namespace, "DEL", "k")
		untilLost(t, held)
		return failed
	})
	if err != failed {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = l.Lock("k", locks.Options{}).Do(ctx, func(ctx context.Context, _ *locks.Held) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if err != context.Canceled || holderOf(t, l, "k") != nil {
		t.Fatal(err)
	}
}

func TestTheContextOfAHoldEndsWithIt(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{})
	ctx := held.Context(context.Background())
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	if wasHeld, err := held.Release(context.Background()); !wasHeld || err != nil {
		t.Fatal(wasHeld, err)
	}
	<-ctx.Done()
	after := held.Context(context.Background())
	if context.Cause(ctx) != context.Canceled || after.Err() == nil || held.Err() != nil {
		t.Fatal(context.Cause(ctx), after.Err(), held.Err())
	}
}

func TestAReleaseIsDoneAlsoIfItsContextIsDone(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if wasHeld, err := held.Release(ctx); !wasHeld || err != nil {
		t.Fatal(wasHeld, err)
	}
}

func TestALockServesSeveralGoroutinesAndNestsIfItIsReentrant(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	lock := l.Lock("k", locks.Options{Reentrant: true})
	err := lock.Do(context.Background(), func(ctx context.Context, outer *locks.Held) error {
		return lock.Do(ctx, func(_ context.Context, inner *locks.Held) error {
			if outer.Token() != inner.Token() || holderOf(t, l, "k").Permits != 2 {
				t.Error(outer.Token(), inner.Token(), holderOf(t, l, "k"))
			}
			return nil
		})
	})
	if err != nil || holderOf(t, l, "k") != nil {
		t.Fatal(err, holderOf(t, l, "k"))
	}
	shared := l.Lock("k", locks.Options{Shared: true})
	var both, ended sync.WaitGroup
	both.Add(2)
	for range 2 {
		ended.Add(1)
		go func() {
			defer ended.Done()
			err := shared.Do(context.Background(), func(context.Context, *locks.Held) error {
				both.Done()
				both.Wait()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
	}
	ended.Wait()
	if holder := holderOf(t, l, "k"); holder != nil {
		t.Fatal(holder)
	}
}

func TestLeaveKeepsTheLockWithoutRenewal(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{})
	if err := held.Leave(context.Background(), 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	wasHeld, err := held.Release(context.Background())
	if held.Remaining() != 0 || held.Err() != nil || wasHeld || err != nil {
		t.Fatal(held.Remaining(), held.Err(), wasHeld, err)
	}
	if left := holderOf(t, l, "k").Left; left <= 590*time.Second || left > 600*time.Second {
		t.Fatal(left)
	}
}

func TestAHoldThatWasReleasedIsNeitherExtendedNorLost(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{Lease: time.Second, NoRenewal: true})
	deadline, isKnown := held.Deadline()
	if wasHeld, err := held.Release(context.Background()); !wasHeld || err != nil || !isKnown {
		t.Fatal(wasHeld, err)
	}
	err := held.Extend(context.Background(), 0)
	if !errors.Is(err, locks.ErrLost) || !strings.Contains(err.Error(), "it was released") {
		t.Fatal(err)
	}
	await(t, func() bool { return time.Now().After(deadline) })
	select {
	case <-held.Lost():
		t.Fatal(held.Err())
	default:
	}
	if held.Err() != nil || held.Remaining() != 0 {
		t.Fatal(held.Err(), held.Remaining())
	}
}

func TestEachOfManyLocksIsLostInItsTurn(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	var kept []*locks.Held
	for number := range 40 {
		key := strconv.Itoa(number)
		// A later one has an earlier deadline, or a later one.
		lease := time.Duration(300+(number*7%11)*40) * time.Millisecond
		kept = append(kept, take(t, l, key, locks.Options{Lease: lease, NoRenewal: true}))
		other := take(t, l, "other "+key, locks.Options{Lease: lease + 10*time.Second})
		if wasHeld, err := other.Release(context.Background()); !wasHeld || err != nil {
			t.Fatal(wasHeld, err)
		}
	}
	for _, held := range kept {
		deadline, _ := held.Deadline()
		<-held.Lost()
		// The longest lease is 700 ms, and a tenth of it is left.
		if time.Now().Before(deadline.Add(-70*time.Millisecond)) || !errors.Is(held.Err(), locks.ErrLost) {
			t.Fatal(held.Key(), held.Err())
		}
	}
}

func TestASessionHasNoLeaseToExtend(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{Session: true})
	if err := held.Extend(context.Background(), 0); !errors.Is(err, locks.ErrInvalid) {
		t.Fatal(err)
	}
	if _, isKnown := held.Deadline(); isKnown || held.Remaining() != locks.Forever {
		t.Fatal(held.Remaining())
	}
	delayed := take(t, l, "l", locks.Options{Session: true, Delay: time.Minute})
	if _, isKnown := delayed.Deadline(); !isKnown || delayed.Remaining() > time.Minute {
		t.Fatal(delayed.Remaining())
	}
}

func TestASessionLastsUntilItsReleaseIsDone(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	held := take(t, l, "k", locks.Options{Session: true})
	namespace.Faults().Delay(500*time.Millisecond, redlatchtest.Where{Command: "LOCK.RELEASE", Times: 1})
	if wasHeld, err := held.Release(context.Background()); !wasHeld || err != nil {
		t.Fatal(wasHeld, err)
	}
}

func TestASessionWhoseReleaseIsRefusedEnds(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	for _, delay := range []time.Duration{0, time.Millisecond} {
		held := take(t, l, "k", locks.Options{Session: true, Delay: delay})
		namespace.Faults().Error("NOPERM no", redlatchtest.Where{Command: "LOCK.RELEASE", Times: 1})
		if _, err := held.Release(context.Background()); !errors.Is(err, locks.ErrRefused) {
			t.Fatal(err)
		}
		await(t, func() bool { return holderOf(t, l, "k") == nil })
		untilLost(t, held)
	}
}

func TestLocksThatAreClosedTakeNoneAndLeaveNothingBehind(t *testing.T) {
	namespace := server.Namespace(t)
	client := redis.NewClient(optionsOf(namespace))
	defer client.Close()
	// What the client of go-redis has running itself, and other tests.
	if err := client.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	l := locks.New(client)
	session := take(t, l, "session", locks.Options{Session: true})
	delayed := take(t, l, "delayed", locks.Options{Session: true, Delay: time.Hour})
	leased := take(t, l, "leased", locks.Options{Wait: time.Second})
	ctx := leased.Context(context.Background())
	await(t, func() bool { return namespace.Calls(redlatchtest.Filter{})["PSUBSCRIBE"] == 1 })
	l.Close()
	if _, err := l.Lock("l", locks.Options{}).Acquire(context.Background()); err != locks.ErrClosed {
		t.Fatal(err)
	}
	if !errors.Is(session.Err(), locks.ErrLost) || delayed.Err() != nil || leased.Err() != nil || ctx.Err() != nil {
		t.Fatal(session.Err(), delayed.Err(), leased.Err(), ctx.Err())
	}
	await(t, func() bool { return do(t, namespace, "EXISTS", "session") == int64(0) })
	await(t, func() bool { return runtime.NumGoroutine() <= before })
	// The client is open, and the lock is still to be released.
	if wasHeld, err := leased.Release(context.Background()); !wasHeld || err != nil {
		t.Fatal(wasHeld, err)
	}
}

func TestAClientThatIsClosedIsSaidAtOnce(t *testing.T) {
	client := redis.NewClient(optionsOf(server.Namespace(t)))
	l := locks.New(client)
	defer l.Close()
	_ = client.Close()
	_, err := l.Lock("k", locks.Options{}).Acquire(context.Background())
	if !errors.Is(err, locks.ErrUnreachable) || !errors.Is(err, redis.ErrClosed) {
		t.Fatal(err)
	}
}

func TestAServerThatIsNotThereIsUnreachable(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t), DialerRetries: 1})
	defer client.Close()
	l := locks.New(client)
	defer l.Close()
	for _, options := range []locks.Options{{}, {Session: true}, {Wait: 200 * time.Millisecond}} {
		if _, err := l.Lock("k", options).Acquire(context.Background()); !errors.Is(err, locks.ErrUnreachable) {
			t.Fatal(err)
		}
	}
}

func TestAUserWhoMayNotSubscribeFindsLossesOutByRenewal(t *testing.T) {
	said := &safeBuffer{}
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	defer slog.SetDefault(usual)
	// Users are those of a server, not of a namespace.
	process := startProcess(t, redlatchProgram(t), "--port", "0", "--unixsocket", "SOCKET")
	operator := redis.NewClient(process.options())
	defer operator.Close()
	words := []any{"ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "resetchannels"}
	if err := operator.Do(context.Background(), words...).Err(); err != nil {
		t.Fatal(err)
	}
	options := process.options()
	options.Username, options.Password = "limited", "secret"
	client := redis.NewClient(options)
	defer client.Close()
	l := locks.New(client)
	defer l.Close()
	held := take(t, l, "k", locks.Options{Lease: 3 * time.Second})
	await(t, func() bool { return strings.Contains(said.String(), "renewals only") })
	operator.Del(context.Background(), "k")
	untilLost(t, held)
	var lost *locks.LostError
	if !errors.As(held.Err(), &lost) || lost.Reason != locks.NotHeld {
		t.Fatal(held.Err())
	}
}

func TestARefusalSaysAllThatIsKnown(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	take(t, l, "the 'k'", locks.Options{Owner: "alice\u202e", Meta: map[string]string{"reason": "release 4.2", "host": "ci\n7"}})
	_, err := l.Lock("the 'k'", locks.Options{}).Acquire(context.Background())
	lines := strings.Split(err.Error(), "\n")
	wanted := []string{
		"the 'k' is held", "  key:    the 'k'", "  holder: alice\\u202e", "  at:     127.0.0.1:",
		"  host:   ci\\n7", "  reason: release 4.2",
		"  since:  20",
		"  lease:  30.0 s left", "  token:  1", "  queue:  0 waiting",
		`To take it by force: redlatch break 'the '"'"'k'"'"'' --token 1`,
	}
	if len(lines) != len(wanted) {
		t.Fatal(err)
	}
	for index, line := range lines {
		if !strings.HasPrefix(line, wanted[index]) && index != 7 {
			t.Errorf("%q begins with %q", line, wanted[index])
		}
	}
}

func TestOtherClientsAreRefusedWhenTheLocksAreMade(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer ring.Close()
	defer func() {
		if recover() == nil {
			t.Fatal("it takes a ring")
		}
	}()
	locks.New(ring)
}

// safeBuffer may be read while it is written.
type safeBuffer struct {
	guard sync.Mutex
	text  bytes.Buffer
}

func (buffer *safeBuffer) Write(text []byte) (int, error) {
	buffer.guard.Lock()
	defer buffer.guard.Unlock()
	return buffer.text.Write(text)
}

func (buffer *safeBuffer) String() string {
	buffer.guard.Lock()
	defer buffer.guard.Unlock()
	return buffer.text.String()
}
