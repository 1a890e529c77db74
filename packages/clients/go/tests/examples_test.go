package tests

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"redlatch.dev/locks"
	"redlatch.dev/locks/examples"
	"redlatch.dev/locks/gocronlocks"
	gocronexamples "redlatch.dev/locks/gocronlocks/examples"
)

// The examples of the documentation, each run.

// printed returns what work prints.
func printed(t *testing.T, work func()) string {
	t.Helper()
	usual := os.Stdout
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = writer
	said := make(chan string)
	go func() {
		var text bytes.Buffer
		_, _ = io.Copy(&text, reader)
		said <- text.String()
	}()
	work()
	os.Stdout = usual
	_ = writer.Close()
	return <-said
}

func TestStock(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	var written []string
	write := func(article string, token int64) error {
		if token <= 0 {
			t.Error(token)
		}
		written = append(written, article)
		return nil
	}
	if err := examples.Restock(context.Background(), l, []string{"shirts", "shoes"}, write); err != nil {
		t.Fatal(err)
	}
	namespace.Clock().Freeze()
	take(t, l, "lock:stock", locks.Options{Meta: map[string]string{"reason": "stocktaking"}})
	said := printed(t, func() {
		done := make(chan error)
		go func() { done <- examples.Restock(context.Background(), l, []string{"hats"}, write) }()
		await(t, func() bool { return holderOf(t, l, "lock:stock").Waiters == 1 })
		namespace.Clock().Advance(5001 * time.Millisecond)
		if err := <-done; !errors.Is(err, locks.ErrHeld) {
			t.Error(err)
		}
	})
	isTold := strings.Contains(said, "stocktaking") && strings.Contains(said, "redlatch break lock:stock --token 2")
	if len(written) != 2 || !isTold {
		t.Fatal(written, said)
	}
}

func TestLeader(t *testing.T) {
	namespace := server.Namespace(t)
	l := newLocks(t, namespace)
	ctx, cancel := context.WithCancel(context.Background())
	said := printed(t, func() {
		tokens, done := make(chan int64), make(chan error)
		go func() {
			done <- examples.LeadForever(ctx, l, func(ctx context.Context, held *locks.Held) error {
				tokens <- held.Token()
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		first := <-tokens
		do(t, namespace, "LOCK.BREAK", "lock:leader", "TOKEN", first, "REASON", "drained")
		if second := <-tokens; second <= first {
			t.Error(first, second)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if !strings.Contains(said, "lock:leader is lost") {
		t.Fatal(said)
	}
}

func TestRunOnGPU(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	take(t, l, "gpu:0", locks.Options{})
	var said bytes.Buffer
	command := exec.Command("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
	command.Stdout = &said
	if err := examples.RunOnGPU(context.Background(), l, command); err != nil || said.String() != "1\n" {
		t.Fatal(err, said.String())
	}
	if holder := holderOf(t, l, "gpu:1"); holder != nil {
		t.Fatal(holder)
	}
}

func TestRunFor(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	count := 0
	err := examples.RunFor(context.Background(), l, "acme", func(ctx context.Context) error {
		return examples.RunFor(ctx, l, "acme", func(context.Context) error {
			count = holderOf(t, l, "total").Holders
			_, err := l.Lock("acme", locks.Options{Permits: 1, Of: 2}).Acquire(context.Background())
			if !errors.Is(err, locks.ErrHeld) {
				t.Error(err)
			}
			return nil
		})
	})
	if err != nil || count != 2 || holderOf(t, l, "total") != nil {
		t.Fatal(err, count)
	}
}

func TestLead(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	lead := func(name, successor string, step func(*locks.Held)) (chan error, chan int64) {
		done, first, stopping := make(chan error, 1), make(chan int64, 1), make(chan struct{})
		go func() {
			done <- examples.Lead(context.Background(), l, name, successor, stopping, func(held *locks.Held) error {
				first <- held.Token()
				step(held)
				close(stopping)
				return nil
			})
		}()
		return done, first
	}
	// It is told to stop once its successor waits.
	one, token := lead("version-1", "version-2", func(*locks.Held) {
		await(t, func() bool { return holderOf(t, l, "lock:leader").Waiters == 1 })
	})
	older := <-token
	// Nobody waits for the lock when this one is told to stop.
	two, token := lead("version-2", "version-3", func(*locks.Held) {})
	if newer := <-token; newer <= older {
		t.Error(older, newer)
	}
	if err := errors.Join(<-one, <-two); err != nil || holderOf(t, l, "lock:leader") != nil {
		t.Fatal(err)
	}
}

func TestOrders(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	database := sqliteWithFence(t, "CREATE TABLE orders (id, state); INSERT INTO orders VALUES (7, 'open'), (8, 'open');")
	if err := examples.CloseOrder(context.Background(), l, database, 7); err != nil {
		t.Fatal(err)
	}
	execute(t, database, "UPDATE redlatch_fence SET token = token + 1000000")
	if err := examples.CloseOrder(context.Background(), l, database, 8); !errors.Is(err, locks.ErrStaleToken) {
		t.Fatal(err)
	}
	var open int
	if err := database.QueryRow("SELECT id FROM orders WHERE state = 'open'").Scan(&open); err != nil || open != 8 {
		t.Fatal(open, err)
	}
}

func execute(t testing.TB, database *sql.DB, statement string) {
	t.Helper()
	if _, err := database.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func TestReport(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	var runs atomic.Int32
	ended := make(chan struct{}, 3)
	for range 3 {
		scheduler, err := gocronexamples.Schedule(l, func() { runs.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = scheduler.Shutdown() }()
		job := scheduler.Jobs()[0]
		listening := gocron.WithEventListeners(
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
				if !errors.Is(err, locks.ErrHeld) {
					t.Error(err)
				}
				ended <- struct{}{}
			}),
			gocron.AfterJobRuns(func(uuid.UUID, string) { ended <- struct{}{} }),
		)
		task := gocron.NewTask(func() { runs.Add(1) })
		hourly, name := gocron.DurationJob(time.Hour), gocron.WithName("report")
		if job, err = scheduler.Update(job.ID(), hourly, task, listening, name); err != nil {
			t.Fatal(err)
		}
		scheduler.Start()
		if err := job.RunNow(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		<-ended
	}
	if runs.Load() != 1 {
		t.Fatal(runs.Load())
	}
	await(t, func() bool { return holderOf(t, l, "lock:report").Left > 31*time.Second })
}

func TestAJobWithoutAtLeastEndsItsLock(t *testing.T) {
	l := newLocks(t, server.Namespace(t))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(&gocronlocks.Locker{Locks: l, Prefix: "job:"}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = scheduler.Shutdown() }()
	began, end := make(chan struct{}), make(chan struct{})
	task := gocron.NewTask(func() {
		close(began)
		<-end
	})
	start := gocron.WithStartAt(gocron.WithStartImmediately())
	if _, err := scheduler.NewJob(gocron.DurationJob(time.Hour), task, gocron.WithName("clean"), start); err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	<-began
	if holderOf(t, l, "job:clean") == nil {
		t.Fatal("nobody has the lock")
	}
	close(end)
	await(t, func() bool { return holderOf(t, l, "job:clean") == nil })
}
