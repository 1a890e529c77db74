// Package locks takes locks of the lock server redlatch, over a client of go-redis: locks that wait in the queue, are
// renewed in the background, carry a fencing token, and tell when they are lost. On Redis and Valkey it takes
// exclusive locks, without tokens.
//
//	held, err := l.Lock("lock:stock", locks.Options{Wait: 5 * time.Second}).Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer held.Release(ctx)
//
// One [Locks] serves the whole program. All its methods, and those of [Lock] and [Held], may be used by several goroutines.
package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Locks are the locks of a server. Make them by [New].
type Locks struct {
	server
	connections *connections
	alarm       alarm
	// Ends with Close. It is the context of all that runs in the background.
	background context.Context
	end        context.CancelFunc
	running    sync.WaitGroup
	starting   sync.Mutex
	listens    bool
	// As many renewals at the same time.
	renewals      chan struct{}
	onUnavailable Unavailable
	opened        atomic.Int64
}

// New makes locks over a client that you have: [redis.NewClient], [redis.NewClusterClient] or
// [redis.NewFailoverClient]. Requests take connections from its pool, each for its time only. A wait, and a lock of a
// session, has a connection of its own beside that pool, of the same options. One more listens for losses.
//
// It panics for a client of another type, as [redis.Ring]: that has no server for the scripts and channels of all keys.
func New(client redis.UniversalClient, settings ...Setting) *Locks {
	connections := newConnections(client)
	background, end := context.WithCancel(context.Background())
	locks := &Locks{connections: connections, background: background, end: end, renewals: make(chan struct{}, renewalsMax)}
	locks.transport, locks.holds = connections, map[*Held]struct{}{}
	locks.budget = budgetDefault
	for _, set := range settings {
		set(locks)
	}
	return locks
}

// Setting is one of all calls of [Locks].
type Setting func(*Locks)

// Budget is how long a call may take beside its wait: connecting, all tries and the pauses between them together.
// Beyond it, the call fails with [ErrUnreachable]. Default: 5 s. It panics for one that is not positive.
func Budget(long time.Duration) Setting {
	if long <= 0 {
		panic(fmt.Sprintf("locks: a budget of %v", long))
	}
	return func(locks *Locks) { locks.budget = long }
}

// Unavailable is what a call of [Lock.Acquire] does that no server has answered within its budget.
type Unavailable int

const (
	// Closed has the call fail with [ErrUnreachable]. It is the default.
	Closed Unavailable = iota
	// Open has it return an open hold, which is no lock: see [Held.Open].
	Open
)

// OnUnavailable sets what a call does that no server has answered within its budget. Default: [Closed]. An error that
// a server replies is an answer, and so is the refusal of a lock that is held.
func OnUnavailable(does Unavailable) Setting {
	return func(locks *Locks) { locks.onUnavailable = does }
}

// Opened is how many open holds there have been: see [OnUnavailable].
func (locks *Locks) Opened() int64 { return locks.opened.Load() }

// Lock is the lock of a key. Nothing is sent before it is taken.
func (locks *Locks) Lock(key string, options Options) *Lock {
	return locks.All([]string{key}, options)
}

// All is the locks of several keys, taken all or none, with one token: exclusive, or as [Options.Modes] says. A key that
// is named twice counts once. In a cluster they must be of one slot. Of the options, only Lease, Wait, Priority, Modes,
// Owner, NoRenewal and StopBefore may be set if there is more than one key.
func (locks *Locks) All(keys []string, options Options) *Lock {
	asked, err := termsOf(keys, options, false)
	return &Lock{locks, asked, err}
}

// AnyOf is the lock of one of several keys: the first in this order that is free. With a Wait, the first that becomes
// free. [Held.Key] says which it is. Keys and options are as of [Locks.All]; with an Owner that holds one of the keys, it
// is that one.
func (locks *Locks) AnyOf(keys []string, options Options) *Lock {
	asked, err := termsOf(keys, options, true)
	return &Lock{locks, asked, err}
}

// LockedBy is who holds a key; nil if nobody does. Errors are [ErrUnreachable], [ErrRefused], and those of ctx.
func (locks *Locks) LockedBy(ctx context.Context, key string) (*Holder, error) {
	return locks.lockedBy(ctx, key)
}

// Close ends all that runs in the background, and returns when it has ended. Locks that are held are not renewed any
// more, and sessions end. The client stays open.
func (locks *Locks) Close() {
	locks.starting.Lock()
	locks.end()
	locks.starting.Unlock()
	for _, held := range locks.allHolds() {
		held.locksAreClosed()
	}
	locks.connections.close()
	locks.running.Wait()
}

// run does something in the background, unless the locks are closed.
func (locks *Locks) run(work func(context.Context)) {
	locks.starting.Lock()
	defer locks.starting.Unlock()
	if locks.background.Err() != nil {
		return
	}
	locks.running.Add(1)
	go func() {
		defer locks.running.Done()
		work(locks.background)
	}()
}

// listenOnce begins to listen for losses, once.
func (locks *Locks) listenOnce() {
	locks.starting.Lock()
	begins := !locks.listens
	locks.listens = true
	locks.starting.Unlock()
	if begins {
		locks.run(locks.listen)
	}
}

// listen subscribes to all losses, which are few. Without the right to it, losses are found out by the next renewal.
func (locks *Locks) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := locks.connections.subscribe(ctx, lostChannel+"*", locks.renewAll, locks.isTold)
		for _, word := range []string{"NOPERM", "NOAUTH", "WRONGPASS"} {
			if startsWith(err, word) {
				slog.WarnContext(ctx, "losses of locks are found out by renewals only", "error", err)
				return
			}
		}
		_ = sleep(ctx, retryMax)
	}
}

// renewAll: messages may have been missed, so each lock is renewed now, which shows whether it is still held.
func (locks *Locks) renewAll() {
	for _, held := range locks.allHolds() {
		held.renewNow()
	}
}

// Lock is a lock that can be taken, again and again.
type Lock struct {
	locks *Locks
	terms terms
	err   error
}

// Acquire takes the lock, or waits for it. When ctx is done it leaves the queue, gives up what it may have been
// granted in this moment, and returns the error of ctx.
//
// If no server answers, and [OnUnavailable] is [Open], it returns an open hold, which is no lock.
//
// Other errors are [*HeldError] when the wait has ended, [ErrInvalid], [ErrNotSupported] on a server without LOCK
// commands, [ErrRefused], [ErrDeadlock], [ErrUnreachable] and [ErrClosed]. A request whose answer is lost, or that
// the server refuses for a moment, is repeated until the wait has passed, and three times at least, but not beyond the
// [Budget] of these [Locks].
func (lock *Lock) Acquire(ctx context.Context) (*Held, error) {
	locks := lock.locks
	switch {
	case lock.err != nil:
		return nil, lock.err
	case locks.background.Err() != nil:
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	asked := lock.terms.anew()
	trying := newBudget(locks.budget, asked.wait)
	granted, err := locks.acquire(ctx, &asked, trying)
	switch {
	case err == nil:
		return newHeld(locks, asked, granted), nil
	case ctx.Err() != nil:
		locks.run(func(ctx context.Context) { locks.giveUp(ctx, &asked) })
		return nil, ctx.Err()
	case locks.onUnavailable == Open && !trying.isAnswered && isSilence(err):
		locks.opened.Add(1)
		slog.WarnContext(ctx, "no server answers: this goes on without a lock", "key", asked.keys[0], "error", err)
		return newOpenHeld(locks, asked), nil
	}
	return nil, err
}

// LockedBy is who holds the first key; nil if nobody does.
func (lock *Lock) LockedBy(ctx context.Context) (*Holder, error) {
	if lock.err != nil {
		return nil, lock.err
	}
	return lock.locks.LockedBy(ctx, lock.terms.keys[0])
}

// Do takes the lock, calls work, and releases the lock. The context that work gets is done when the lock is lost: see
// [Held.Context].
//
// It returns the errors of [Lock.Acquire]; a [*LostError] if the lock was lost while work ran and work returned nil
// or the error of its context; or else what work returned.
func (lock *Lock) Do(ctx context.Context, work func(ctx context.Context, held *Held) error) error {
	held, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	// Also if work panics.
	defer func() { _ = held.releaseOrWarn(ctx) }()
	err = work(held.Context(ctx), held)
	lost := held.Err()
	if err == nil && held.wasHandedOver() {
		return nil
	}
	if found := held.releaseOrWarn(ctx); lost == nil {
		lost = found
	}
	if lost != nil && ctx.Err() == nil && (err == nil || errors.Is(err, context.Canceled)) {
		return lost
	}
	return err
}

// releaseOrWarn releases, unless that is done. It returns the loss that only this has found.
func (held *Held) releaseOrWarn(ctx context.Context) error {
	held.guard.Lock()
	isDone := held.isReleased
	held.guard.Unlock()
	if isDone {
		return nil
	}
	wasHeld, err := held.Release(ctx)
	switch {
	case err != nil:
		slog.WarnContext(ctx, "a lock is not released, and ends with its lease", "key", held.Key(), "error", err)
	case !wasHeld && !held.Open():
		return &LostError{Key: held.Key(), Token: held.Token(), Reason: NotHeld}
	}
	return nil
}

// Renewals at the same time.
const renewalsMax = 8
