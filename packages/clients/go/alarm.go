package locks

import (
	"container/heap"
	"sync"
	"time"
)

// alarm wakes locks at their moments. One timer has all of them: most are released before theirs comes, and the timer
// stays as it is then, so that one in a while goes off too early.
type alarm struct {
	guard sync.Mutex
	locks byMoment
	timer *time.Timer
	// When the timer goes off; never, if it is not set.
	next moment
}

// set has a lock woken then, and not at the moment before.
func (alarm *alarm) set(held *Held, at moment) {
	alarm.guard.Lock()
	defer alarm.guard.Unlock()
	alarm.take(held)
	if !at.IsZero() {
		held.wakesAt = at
		heap.Push(&alarm.locks, held)
		alarm.setTimer()
	}
}

// stop has a lock not woken.
func (alarm *alarm) stop(held *Held) {
	alarm.guard.Lock()
	defer alarm.guard.Unlock()
	alarm.take(held)
}

func (alarm *alarm) take(held *Held) {
	if !held.wakesAt.IsZero() {
		heap.Remove(&alarm.locks, held.place)
		held.wakesAt = moment{}
	}
}

// setTimer has it go off for the first lock, unless it does so before.
func (alarm *alarm) setTimer() {
	if len(alarm.locks) == 0 {
		return
	}
	first := alarm.locks[0].wakesAt
	switch {
	case !alarm.next.IsZero() && !first.Before(alarm.next.Time):
		return
	case alarm.timer == nil:
		alarm.timer = time.AfterFunc(first.left(), alarm.ring)
	default:
		alarm.timer.Reset(first.left())
	}
	alarm.next = first
}

func (alarm *alarm) ring() {
	alarm.guard.Lock()
	defer alarm.guard.Unlock()
	alarm.next = moment{}
	for len(alarm.locks) > 0 && alarm.locks[0].wakesAt.hasCome() {
		held := alarm.locks[0]
		alarm.take(held)
		// Who has its guard may wait for that of the alarm.
		go held.wake()
	}
	alarm.setTimer()
}

// byMoment is a heap of locks: the first one to be woken is the first.
type byMoment []*Held

func (locks byMoment) Len() int           { return len(locks) }
func (locks byMoment) Less(i, j int) bool { return locks[i].wakesAt.Before(locks[j].wakesAt.Time) }

func (locks byMoment) Swap(i, j int) {
	locks[i], locks[j] = locks[j], locks[i]
	locks[i].place, locks[j].place = i, j
}

func (locks *byMoment) Push(held any) {
	held.(*Held).place = len(*locks)
	*locks = append(*locks, held.(*Held))
}

func (locks *byMoment) Pop() any {
	last := len(*locks) - 1
	held := (*locks)[last]
	(*locks)[last] = nil
	*locks = (*locks)[:last]
	return held
}
