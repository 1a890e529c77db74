package locks

import (
	"context"
	"sync"
	"time"
)

// Held is a lock that is held by this process. It is not to be copied.
type Held struct {
	locks     *Locks
	terms     terms
	token     int64
	isPlain   bool
	session   session
	sessionID string
	isOpen    bool
	lost      chan struct{}
	// Requests that extend go one after the other: they may name leases of different length.
	extending chan struct{}
	// A release that has failed may have given it back: one of its keys was, or an answer was lost. Its release alone
	// uses it.
	mayBeReleased bool

	guard    sync.Mutex
	lease    time.Duration
	deadline moment
	// When it is to be renewed.
	next       moment
	renews     bool
	isRenewing bool
	isReleased bool
	isFinished bool
	// Leave has been called: nothing has to stop before the deadline.
	isLeaving bool
	// TransferTo has succeeded: that it is lost is no news to the program.
	isHandedOver bool
	reason       *LostError
	// Done when it is lost, or was released. Made when it is asked for.
	over    context.Context
	endOver context.CancelCauseFunc

	// When it is woken, and its place among those that are. The guard of the alarm is that of both.
	wakesAt moment
	place   int
}

func newHeld(locks *Locks, asked terms, granted *grant) *Held {
	if granted.key != "" {
		asked.keys = []string{granted.key}
	}
	held := &Held{
		locks: locks, terms: asked, token: granted.token, isPlain: granted.isPlain,
		session: granted.session, sessionID: granted.sessionID,
		lost: make(chan struct{}), extending: make(chan struct{}, 1),
		lease: asked.lasts(), deadline: after(granted.begun, asked.lasts()), renews: asked.renews,
	}
	held.next = held.renewalAfter(granted.begun, held.lease)
	held.guard.Lock()
	locks.keep(held)
	locks.alarm.set(held, held.wakesNext())
	held.guard.Unlock()
	if held.session != nil {
		locks.run(held.keepSession)
	}
	if held.token != 0 {
		locks.listenOnce()
	}
	if locks.background.Err() != nil {
		held.locksAreClosed()
	}
	return held
}

// newOpenHeld is a hold that nobody has granted.
func newOpenHeld(locks *Locks, asked terms) *Held {
	return &Held{
		locks: locks, terms: asked, isOpen: true, lost: make(chan struct{}), extending: make(chan struct{}, 1),
		lease: asked.lasts(),
	}
}

// Open is true if this is no lock: no server has answered, and [OnUnavailable] is [Open]. Others may work at the same
// time. An open hold has no token and no deadline, is never lost, and sends nothing: Extend and Leave do nothing,
// Release says that it was not held, and Fenced and TransferTo fail with [ErrUnreachable].
func (held *Held) Open() bool { return held.isOpen }

// Key is the key: of [Locks.AnyOf] the one that was got, of [Locks.All] the first.
func (held *Held) Key() string { return held.terms.keys[0] }

// Owner is the name under which the lock was taken.
func (held *Held) Owner() string { return held.terms.owner }

// Token is the fencing token: higher than that of every grant before. 0 from a server without LOCK commands.
func (held *Held) Token() int64 { return held.token }

// Lost is closed when the lock is lost, [Options.StopBefore] ahead of its deadline at the latest. It stays open when
// the lock is released.
func (held *Held) Lost() <-chan struct{} { return held.lost }

// Err is nil while the lock is held, and after it was released; once it is lost, a [*LostError]. Ask before each step
// that needs the lock.
func (held *Held) Err() error {
	held.guard.Lock()
	defer held.guard.Unlock()
	if lost := held.whyLost(); lost != nil {
		return lost
	}
	return nil
}

// Deadline is until when the lock is certainly held if nobody breaks it. It counts from the moment in which the last
// successful request was sent, on the monotonic clock. False if there is none: a session without a delay lasts as
// long as its connection.
func (held *Held) Deadline() (time.Time, bool) {
	held.guard.Lock()
	defer held.guard.Unlock()
	return held.deadline.Time, !held.deadline.IsZero()
}

// Remaining is for how long the lock is certainly held if nobody breaks it: [Forever] for a session without a delay,
// 0 once the lock is lost or released.
func (held *Held) Remaining() time.Duration {
	held.guard.Lock()
	defer held.guard.Unlock()
	if held.isReleased || held.whyLost() != nil {
		return 0
	}
	return max(held.deadline.left(), 0)
}

// Context is a copy of parent that is done when the lock is lost, or was released. [context.Cause] says which: a
// [*LostError], or [context.Canceled].
func (held *Held) Context(parent context.Context) context.Context {
	held.guard.Lock()
	if held.over == nil {
		held.over, held.endOver = context.WithCancelCause(context.Background())
		if lost := held.whyLost(); lost != nil {
			held.endOver(lost)
		} else if held.isReleased {
			held.endOver(nil)
		}
	}
	over := held.over
	held.guard.Unlock()
	ctx, cancel := context.WithCancelCause(parent)
	if over.Err() != nil {
		cancel(context.Cause(over))
		return ctx
	}
	stop := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	context.AfterFunc(ctx, func() { stop() })
	return ctx
}

// Extend starts the lease anew, with another length from now on unless it is 0. Errors are [*LostError],
// [ErrUnreachable], [ErrRefused], [ErrInvalid] for a session, which has no lease, and those of ctx.
func (held *Held) Extend(ctx context.Context, lease time.Duration) error {
	if err := held.mayLast(lease); err != nil {
		return err
	}
	if lease != 0 && lease <= held.terms.stopBefore {
		return invalid("lease: %v, longer than the %v to stop before", lease, held.terms.stopBefore)
	}
	return held.extend(ctx, lease)
}

func (held *Held) extend(ctx context.Context, lease time.Duration) error {
	if held.isOpen {
		return nil
	}
	trying := newBudget(held.locks.budget, 0)
	if err := held.takeTurn(ctx, trying); err != nil {
		return err
	}
	defer func() { <-held.extending }()
	for {
		if err := held.whyOver(); err != nil {
			return err
		}
		length := lease
		if length == 0 {
			length = held.leaseNow()
		}
		err := held.locks.extend(ctx, held.locks, held, length, trying)
		if err == nil {
			return held.Err()
		}
		if err := trying.after(ctx, err); err != nil {
			return err
		}
	}
}

// takeTurn waits for the turn to extend.
func (held *Held) takeTurn(ctx context.Context, trying *budget) error {
	late := time.NewTimer(trying.end.left())
	defer late.Stop()
	select {
	case held.extending <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return refusal(failed(errNoAnswer))
	}
}

// mayLast refuses what is no new length of its lease; 0 is the one that it has.
func (held *Held) mayLast(lease time.Duration) error {
	if held.terms.isSession {
		return invalid("a session has no lease: it ends with its connection")
	}
	if lease != 0 && !isLease(lease) {
		return invalidLease(lease)
	}
	return nil
}

// Leave leaves the lock held for so long, 1 ms at least, and renews it no more. Errors are those of [Held.Extend].
func (held *Held) Leave(ctx context.Context, rest time.Duration) error {
	rest = max(rest, time.Millisecond)
	if err := held.mayLast(rest); err != nil {
		return err
	}
	held.guard.Lock()
	held.isLeaving, held.renews, held.next = true, false, moment{}
	held.guard.Unlock()
	if err := held.extend(ctx, rest); err != nil {
		return err
	}
	held.guard.Lock()
	defer held.guard.Unlock()
	held.isReleased = true
	held.finish(nil)
	return nil
}

// TransferTo hands the lock over: owner has it in the same instant, with a higher token, and this hold is lost as
// [Transferred]. If owner waits for this lock alone, its wait is answered, before all others. Otherwise it has the lock
// for the lease, and takes it under its name.
//
// It returns the new token; 0 if the session of owner has ended in the same instant. Errors are [*LostError],
// [ErrNotSupported] on a server without LOCK commands, [ErrInvalid] for a lock of several keys, and those of ctx before it
// is sent.
// [ErrRefused]: as if owner does not wait, and the lease is 0; the lock is held on. [ErrUnreachable]: the next renewal
// finds what has become of it.
func (held *Held) TransferTo(ctx context.Context, owner string, lease time.Duration) (int64, error) {
	if err := held.mayBeHandedTo(owner, lease); err != nil {
		return 0, err
	}
	trying := newBudget(held.locks.budget, 0)
	if err := held.takeTurn(ctx, trying); err != nil {
		return 0, err
	}
	defer func() { <-held.extending }()
	if err := held.whyOver(); err != nil {
		return 0, err
	}
	// The context of the hold is done when the loss is told, which may be before the answer comes.
	token, err := held.locks.transfer(context.WithoutCancel(ctx), held, owner, lease, trying)
	if err != nil {
		return 0, err
	}
	held.guard.Lock()
	defer held.guard.Unlock()
	held.setLost(Transferred, "")
	held.isHandedOver, held.isReleased = true, true
	return token, nil
}

// mayBeHandedTo refuses what no server hands over.
func (held *Held) mayBeHandedTo(owner string, lease time.Duration) error {
	if err := held.whyOver(); err != nil {
		return err
	}
	switch {
	case held.isOpen:
		return refusal(failed(errNoAnswer))
	case len(held.terms.keys) > 1:
		return invalid("only a lock of one key can be handed over")
	case owner == "" || len(owner) > ownerBytesMax:
		return invalidOwner(owner)
	case owner == held.terms.owner:
		return invalid("owner: %q has the lock already", owner)
	case lease != 0 && !isLease(lease):
		return invalidLease(lease)
	case held.isPlain:
		return notSupported("a hand-over")
	}
	return nil
}

func (held *Held) wasHandedOver() bool {
	held.guard.Lock()
	defer held.guard.Unlock()
	return held.isHandedOver
}

// Release gives the lock back. False if it was not held any more. It does so also if ctx is done, so that it may be
// deferred. Errors are [ErrUnreachable] and [ErrRefused]: then the lock ends with its lease.
func (held *Held) Release(ctx context.Context) (bool, error) {
	held.guard.Lock()
	if held.isReleased {
		held.guard.Unlock()
		return false, nil
	}
	held.whyLost()
	held.isReleased = true
	held.renews, held.next = false, moment{}
	if held.isOpen {
		held.finish(nil)
		held.guard.Unlock()
		return false, nil
	}
	held.guard.Unlock()
	held.locks.forget(held)
	wasHeld, err := held.locks.release(context.WithoutCancel(ctx), held)
	held.guard.Lock()
	defer held.guard.Unlock()
	if err != nil {
		held.isReleased = false
		held.endSession()
		if held.mayBeReleased {
			held.setLost(NotHeld, "")
		}
		held.keepUnreleased()
		return false, err
	}
	held.finish(nil)
	return wasHeld, nil
}

// keepUnreleased has its loss told, and renews it no more. The caller has the guard.
func (held *Held) keepUnreleased() {
	if !held.isOverNow() {
		held.locks.keep(held)
		held.locks.alarm.set(held, held.wakesNext())
	}
}

// whyLost is nil while the lock is held. The caller has the guard.
func (held *Held) whyLost() *LostError {
	if held.reason == nil && !held.isReleased && held.stops().hasCome() {
		held.setLost(Unrenewed, "")
	}
	return held.reason
}

// stops is when the hold is lost, unless it is renewed before. The caller has the guard.
func (held *Held) stops() moment {
	if held.deadline.IsZero() || held.isLeaving {
		return held.deadline
	}
	return moment{held.deadline.Add(-held.terms.stopsBefore(held.lease))}
}

// setLost tells the loss. The caller has the guard.
func (held *Held) setLost(reason Reason, text string) {
	if held.reason != nil || held.isReleased {
		return
	}
	held.reason = &LostError{held.terms.keys[0], held.token, reason, text}
	close(held.lost)
	held.finish(held.reason)
}

func (held *Held) lose(reason Reason, text string) {
	held.guard.Lock()
	defer held.guard.Unlock()
	held.setLost(reason, text)
}

func (held *Held) isLost() bool {
	held.guard.Lock()
	defer held.guard.Unlock()
	return held.reason != nil
}

// whyOver is nil while the lock is held.
func (held *Held) whyOver() error {
	held.guard.Lock()
	defer held.guard.Unlock()
	if lost := held.whyLost(); lost != nil {
		return lost
	}
	if held.isReleased {
		return &LostError{held.terms.keys[0], held.token, Released, ""}
	}
	return nil
}

func (held *Held) leaseNow() time.Duration {
	held.guard.Lock()
	defer held.guard.Unlock()
	return held.lease
}
