package redlatchtest

import "time"

// Clock is the clock of a namespace. It drives everything that has a time: leases, TTL, TIME, the ends of waits. Calls that move
// it return after all that fell due has happened. Times have millisecond precision.
type Clock struct {
	namespace *Namespace
}

// ClockState is what the clock shows.
type ClockState struct {
	// Mode is "running", "frozen" or "auto".
	Mode string
	// Now is Unix time in milliseconds.
	Now int64
	// Lock is the monotonic clock in milliseconds.
	Lock int64
	// Deadlines are the next ten.
	Deadlines []Deadline
}

// Deadline is something that falls due: At in Unix milliseconds, In in milliseconds.
type Deadline struct {
	At     int64
	In     int64
	What   string
	Key    string
	Client any
	Node   int
}

// Freeze lets time stand still.
func (clock *Clock) Freeze() time.Time {
	clock.namespace.t.Helper()
	return clock.time("FREEZE")
}

// Run lets time pass as usual, from where it stands.
func (clock *Clock) Run() time.Time {
	clock.namespace.t.Helper()
	return clock.time("RUN")
}

// Advance moves time forward through every deadline in between, in order.
func (clock *Clock) Advance(by time.Duration) time.Time {
	clock.namespace.t.Helper()
	return clock.time("ADVANCE", millis(by))
}

// Set is like [Clock.Advance], to a moment. An earlier one is refused.
func (clock *Clock) Set(to time.Time) time.Time {
	clock.namespace.t.Helper()
	return clock.time("SET", to.UnixMilli())
}

// Next is like [Clock.Advance], to the next deadline. False if nothing is due ever.
func (clock *Clock) Next() (time.Time, bool) {
	clock.namespace.t.Helper()
	millis := ask[*int64](clock.namespace, "TEST.CLOCK", "NEXT")
	if millis == nil {
		return time.Time{}, false
	}
	return time.UnixMilli(*millis), true
}

// Auto freezes time, and goes to the next deadline whenever every client is blocked, or silent for so long; zero is the server's
// default, 20 ms. [Clock.Freeze] ends it.
func (clock *Clock) Auto(idle time.Duration) {
	clock.namespace.t.Helper()
	ask[string](clock.namespace, option([]any{"TEST.CLOCK", "AUTO", "ON"}, "IDLE", millis(idle))...)
}

// StepWall steps the wall clock alone, as an administrator would. Leases do not change.
func (clock *Clock) StepWall(by time.Duration) time.Time {
	clock.namespace.t.Helper()
	return clock.time("STEP-WALL", millis(by))
}

// Show is mode, time and the next deadlines.
func (clock *Clock) Show() ClockState {
	clock.namespace.t.Helper()
	return ask[ClockState](clock.namespace, "TEST.CLOCK", "SHOW")
}

// Now is what time it is.
func (clock *Clock) Now() time.Time {
	clock.namespace.t.Helper()
	return time.UnixMilli(clock.Show().Now)
}

func (clock *Clock) time(words ...any) time.Time {
	clock.namespace.t.Helper()
	return time.UnixMilli(ask[int64](clock.namespace, append([]any{"TEST.CLOCK"}, words...)...))
}
