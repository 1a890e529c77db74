package locks

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"
)

// How a lock is kept in the background: woken by the alarm and renewed, or, if it is of a session, by a goroutine that
// has the session's connection.

// wake is called by the alarm, when the lock is to be renewed, or is lost unrenewed.
func (held *Held) wake() {
	held.guard.Lock()
	defer held.guard.Unlock()
	if held.isOverNow() {
		return
	}
	if held.session == nil && !held.isRenewing && !held.next.IsZero() && held.next.hasCome() {
		held.isRenewing = true
		held.locks.run(held.renew)
	}
	held.locks.alarm.set(held, held.wakesNext())
}

// wakesNext is when the alarm is needed. The caller has the guard.
func (held *Held) wakesNext() moment {
	if held.session != nil || held.isRenewing {
		return held.stops()
	}
	return earlier(held.next, held.stops())
}

// isOverNow is true when it is lost, or was released. The caller has the guard.
func (held *Held) isOverNow() bool { return held.isReleased || held.whyLost() != nil }

// renew is one renewal. One that fails is tried again until the hold is lost.
func (held *Held) renew(ctx context.Context) {
	// Its own turn first: who extends it may take long, and holds up no others.
	for _, slot := range []chan struct{}{held.extending, held.locks.renewals} {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
		case <-ctx.Done():
			return
		}
	}
	held.guard.Lock()
	held.next = moment{}
	isOver := held.isOverNow()
	held.guard.Unlock()
	if isOver {
		return
	}
	// An error passes, or the hold is lost.
	_ = held.locks.extend(ctx, held.locks, held, held.leaseNow(), held.budgetOfRenewal())
	held.guard.Lock()
	defer held.guard.Unlock()
	held.isRenewing = false
	if held.isOverNow() {
		return
	}
	if held.renews && held.next.IsZero() {
		held.next = moment{time.Now().Add(min(held.lease/30, retryMax))}
	}
	held.locks.alarm.set(held, held.wakesNext())
}

// budgetOfRenewal: what comes after the hold is lost is of no use.
func (held *Held) budgetOfRenewal() *budget {
	held.guard.Lock()
	defer held.guard.Unlock()
	return newBudget(min(answerMax, held.stops().left()), 0)
}

// renewed takes note of a request that has extended the lock.
func (held *Held) renewed(sent time.Time, lease time.Duration) {
	held.guard.Lock()
	defer held.guard.Unlock()
	// What has been told as lost stays lost, whatever the server says later.
	if held.isOverNow() {
		return
	}
	// An earlier request may still be on its way, with a shorter lease, which the next one then puts right in time.
	held.next = held.renewalAfter(sent, min(lease, held.lease))
	held.lease, held.deadline = lease, after(sent, lease)
	held.locks.alarm.set(held, held.wakesNext())
}

// renewalAfter is when a lease that has begun then is to be renewed.
func (held *Held) renewalAfter(begun time.Time, lease time.Duration) moment {
	if !held.renews || lease == Forever {
		return moment{}
	}
	// With a long StopBefore it is renewed earlier, so that a renewal may be tried again.
	return moment{begun.Add(min(lease/3, (lease-held.terms.stopsBefore(lease))/2))}
}

// renewNow has it renewed at once, if it is renewed at all.
func (held *Held) renewNow() {
	held.guard.Lock()
	defer held.guard.Unlock()
	if held.isOverNow() || !held.renews {
		return
	}
	held.next = moment{time.Now()}
	if held.session != nil {
		held.session.wake()
	} else if !held.isRenewing {
		held.locks.alarm.set(held, held.next)
	}
}

// finish ends what keeps the lock. The caller has the guard.
func (held *Held) finish(cause error) {
	held.isFinished = true
	held.locks.alarm.stop(held)
	held.locks.forget(held)
	if held.endOver != nil {
		held.endOver(cause)
	}
	if held.session != nil {
		held.session.close()
	}
}

// locksAreClosed: it is not renewed any more, and its session ends.
func (held *Held) locksAreClosed() {
	held.guard.Lock()
	defer held.guard.Unlock()
	if held.isOverNow() {
		return
	}
	held.renews, held.next = false, moment{}
	held.endSession()
}

// endSession ends the connection of its session, if it is of one, for good. The caller has the guard.
func (held *Held) endSession() {
	if held.session == nil {
		return
	}
	held.isFinished = true
	held.session.close()
	if held.deadline.IsZero() {
		held.setLost(SessionEnded, "")
	}
}

func (held *Held) isOf(key, token string) bool {
	return token == strconv.FormatInt(held.token, 10) && slices.Contains(held.terms.keys, key)
}

// keepSession keeps the connection of a session while the lock is held, and attaches the session to another one when
// it ends.
func (held *Held) keepSession(ctx context.Context) {
	for {
		on, beat := held.nextBeat()
		if on == nil || ctx.Err() != nil {
			return
		}
		var err error
		if beat > 0 {
			err = held.listen(on, beat)
		} else {
			err = held.beat(ctx, on)
			held.beatWithin(beatMax)
		}
		var refused *replyError
		switch {
		case err == nil:
		case errors.As(err, &refused) && passes(err):
			// The connection is as it was.
			_ = sleep(ctx, pauseMin)
			held.beatWithin(0)
		default:
			held.attach(ctx)
		}
	}
}

// beat asks on the connection of its session whether it is held. A hand-over that is under way says itself why it is lost.
func (held *Held) beat(ctx context.Context, on session) error {
	select {
	case held.extending <- struct{}{}:
		defer func() { <-held.extending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if held.whyOver() != nil {
		return nil
	}
	return held.locks.extend(ctx, on, held, held.leaseNow(), held.budgetOfRenewal())
}

func (held *Held) listen(on session, long time.Duration) error {
	hasCome, err := on.listen(long)
	if hasCome {
		// A message may be that the lock is lost. The next request reads it.
		held.beatWithin(0)
	}
	return err
}

// nextBeat is the connection, and how long it is until it is to be asked; nil when the lock is not held any more.
func (held *Held) nextBeat() (session, time.Duration) {
	held.guard.Lock()
	defer held.guard.Unlock()
	// While a release is under way, the connection must last.
	if held.whyLost() != nil || held.isFinished {
		return nil, 0
	}
	if held.next.IsZero() {
		held.next = moment{time.Now().Add(beatMax)}
	}
	return held.session, held.next.left()
}

func (held *Held) beatWithin(long time.Duration) {
	held.guard.Lock()
	defer held.guard.Unlock()
	held.next = earlier(held.next, moment{time.Now().Add(long)})
}

// attach moves the session to a new connection, or tells that it has ended.
func (held *Held) attach(ctx context.Context) {
	key := held.terms.keys[0]
	for {
		old, _ := held.nextBeat()
		if old == nil || ctx.Err() != nil {
			return
		}
		old.close()
		if held.terms.delay == 0 {
			held.lose(SessionEnded, "")
			return
		}
		trying := held.budgetOfRenewal()
		fresh, err := held.locks.connect(ctx, key, trying.limit(0))
		if err == nil {
			if _, err = fresh.ask(ctx, key, trying.limit(0), "LOCK.SESSION", "ATTACH", held.sessionID); err == nil {
				held.goOn(fresh)
				return
			}
			fresh.close()
		}
		if !passes(err) {
			held.lose(SessionEnded, "")
			return
		}
		_ = sleep(ctx, pauseMin)
	}
}

// goOn has the session go on over another connection.
func (held *Held) goOn(fresh session) {
	held.guard.Lock()
	defer held.guard.Unlock()
	if held.isFinished {
		fresh.close()
		return
	}
	held.session, held.next = fresh, moment{time.Now()}
}
