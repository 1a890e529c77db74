package tests

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"redlatch.dev/locks"
	"redlatch.dev/redlatchtest"
)

// How long before its deadline a hold is lost, and what a program goes on with if no server answers.

func TestAHoldIsLostATenthBeforeItsDeadlineAndASecondAtMost(t *testing.T) {
	t.Parallel()
	process := startProcess(t, redlatchProgram(t), "--port", "0", "--unixsocket", "SOCKET")
	l := newLocksOn(t, process)
	cases := map[string]struct {
		options locks.Options
		most    time.Duration
	}{
		"lease":   {locks.Options{Lease: 6 * time.Second}, 600 * time.Millisecond},
		"session": {locks.Options{Session: true, Delay: 6 * time.Second}, 600 * time.Millisecond},
		"long":    {locks.Options{Lease: 12 * time.Second}, time.Second},
		"own":     {locks.Options{Lease: 12 * time.Second, StopBefore: 7 * time.Second}, 7 * time.Second},
	}
	holds := map[string]*locks.Held{}
	for name, each := range cases {
		holds[name] = take(t, l, name, each.options)
	}
	process.kill()
	for name, each := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			<-holds[name].Lost()
			deadline, _ := holds[name].Deadline()
			var lost *locks.LostError
			if !errors.As(holds[name].Err(), &lost) || lost.Reason != locks.Unrenewed {
				t.Error(holds[name].Err())
			}
			if left := time.Until(deadline); left <= 0 || left > each.most {
				t.Errorf("%v before the deadline", left)
			}
		})
	}
}

func TestALockIsRenewedInTimeToBeStoppedLong(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	held := take(t, l, "k", locks.Options{Lease: 12 * time.Second, StopBefore: 9 * time.Second})
	await(t, func() bool { return namespace.Calls(redlatchtest.Filter{})["LOCK.EXTEND"] >= 2 })
	if held.Err() != nil {
		t.Fatal(held.Err())
	}
}

func TestALockIsExtendedByMoreThanItStopsBefore(t *testing.T) {
	ctx := context.Background()
	l := newLocks(t, server.Namespace(t))
	held := take(t, l, "k", locks.Options{StopBefore: 20 * time.Second})
	if err := held.Extend(ctx, 20*time.Second); !errors.Is(err, locks.ErrInvalid) {
		t.Fatal(err)
	}
	// It is left, so that nobody has to stop before its end.
	if err := held.Leave(ctx, 20*time.Second); err != nil || holderOf(t, l, "k") == nil {
		t.Fatal(err)
	}
}

// openLocks are locks of a server that nobody has started, and go on without it.
func openLocks(t testing.TB) *locks.Locks {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t), DialerRetries: 1})
	l := locks.New(client, locks.OnUnavailable(locks.Open), locks.Budget(200*time.Millisecond))
	t.Cleanup(func() {
		l.Close()
		_ = client.Close()
	})
	return l
}

func TestAnOpenHoldIsSaidAndCounted(t *testing.T) {
	said := &safeBuffer{}
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	defer slog.SetDefault(usual)
	l := openLocks(t)
	if l.Opened() != 0 {
		t.Fatal(l.Opened())
	}
	held := take(t, l, "lock:stock", locks.Options{})
	const wanted = `level=WARN msg="no server answers: this goes on without a lock" key=lock:stock error="`
	if !held.Open() || held.Token() != 0 || l.Opened() != 1 || !strings.Contains(said.String(), wanted) {
		t.Fatal(held.Open(), held.Token(), l.Opened(), said.String())
	}
	if _, isKnown := held.Deadline(); isKnown || held.Remaining() != locks.Forever || held.Err() != nil {
		t.Fatal(held.Remaining(), held.Err())
	}
	take(t, l, "other", locks.Options{Session: true})
	if l.Opened() != 2 {
		t.Fatal(l.Opened())
	}
}

// watched is a database that says that it was asked.
type watched struct{ isAsked bool }

func (database *watched) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	database.isAsked = true
	return nil, nil
}

func (*watched) Commit() error { return nil }

func TestAnOpenHoldEndsAsAHoldAndFencesNothing(t *testing.T) {
	ctx := context.Background()
	l := openLocks(t)
	database := &watched{}
	hasWorked := false
	err := l.Lock("k", locks.Options{}).Do(ctx, func(ctx context.Context, held *locks.Held) error {
		hasWorked = held.Open() && ctx.Err() == nil
		return held.Fenced(ctx, locks.SQLite(database), "")
	})
	if !hasWorked || database.isAsked || !errors.Is(err, locks.ErrUnreachable) {
		t.Fatal(hasWorked, database.isAsked, err)
	}
	if err := l.Lock("k", locks.Options{}).Do(ctx, func(context.Context, *locks.Held) error { return nil }); err != nil {
		t.Fatal(err)
	}
	held := take(t, l, "k", locks.Options{})
	over := held.Context(ctx)
	if err := errors.Join(held.Extend(ctx, time.Minute), over.Err(), held.Leave(ctx, time.Minute)); err != nil {
		t.Fatal(err)
	}
	<-over.Done()
	if wasHeld, err := held.Release(ctx); wasHeld || err != nil {
		t.Fatal(wasHeld, err)
	}
}

func TestNothingIsOpenByDefaultNorOnAClientThatIsClosed(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t), DialerRetries: 1})
	closed, open := locks.New(client), locks.New(client, locks.OnUnavailable(locks.Open))
	defer closed.Close()
	defer open.Close()
	if _, err := closed.Lock("k", locks.Options{}).Acquire(context.Background()); !errors.Is(err, locks.ErrUnreachable) {
		t.Fatal(err)
	}
	_ = client.Close()
	_, err := open.Lock("k", locks.Options{}).Acquire(context.Background())
	if !errors.Is(err, locks.ErrUnreachable) || closed.Opened()+open.Opened() != 0 {
		t.Fatal(err, closed.Opened(), open.Opened())
	}
}

// slowLocks are locks over connections that take long to open.
func slowLocks(t testing.TB, options *redis.Options) *locks.Locks {
	dial := redis.NewDialer(options)
	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		time.Sleep(3 * time.Second)
		return dial(ctx, network, address)
	}
	client := redis.NewClient(options)
	l := locks.New(client, locks.Budget(patience))
	t.Cleanup(func() {
		l.Close()
		_ = client.Close()
	})
	return l
}

func TestTheDeadlineCountsFromAnOpenConnection(t *testing.T) {
	for name, wait := range map[string]time.Duration{"pool": 0, "wait": patience} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := slowLocks(t, optionsOf(server.Namespace(t)))
			held := take(t, l, "k", locks.Options{Lease: 2500 * time.Millisecond, Wait: wait, NoRenewal: true})
			if held.Err() != nil {
				t.Fatal(held.Err())
			}
		})
	}
}
