package locks

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"
)

// channel sends requests. What it returns as errors are [*replyError], for an answer that is one, and [*connectionError].
type channel interface {
	// ask sends a request to the server of a key, and returns its answer; nil for a null. All of it may take until limit,
	// with what it takes to connect.
	ask(ctx context.Context, key string, limit time.Duration, words ...any) (any, error)
	// askWaiting is the same for a request that waits for a lock.
	askWaiting(ctx context.Context, key string, limit time.Duration, words ...any) (any, error)
}

// transport is the connections to a server. redis.go has that over go-redis.
type transport interface {
	channel
	// connect makes a connection for a session, to the server of a key, which may take until limit to be found. The first
	// request opens it.
	connect(ctx context.Context, key string, limit time.Duration) (session, error)
}

// session is a connection of its own, which is never replaced by another one.
type session interface {
	channel
	// listen returns when something comes, which is true; after so long; after a call of wake; or with an error when
	// the connection has ended.
	listen(time.Duration) (bool, error)
	// wake ends a call of listen.
	wake()
	// close ends the connection, also while it is used.
	close()
}

// replyError is an answer of the server that is an error.
type replyError struct{ text string }

func (reply *replyError) Error() string { return reply.text }

// connectionError says that a request got no answer. It may have been carried out.
type connectionError struct {
	cause error
	// isFinal: another try would fail in the same way.
	isFinal bool
}

func (lost *connectionError) Error() string { return lost.cause.Error() }
func (lost *connectionError) Unwrap() error { return lost.cause }

// isFromBelow reports whether an error comes from the transport, rather than from a decision.
func isFromBelow(err error) bool {
	var reply *replyError
	var lost *connectionError
	return errors.As(err, &reply) || errors.As(err, &lost)
}

// isUnknownCommand reports whether the server has no LOCK commands.
func isUnknownCommand(err error) bool {
	return startsWith(err, "ERR unknown command") || startsWith(err, "unknown command")
}

// passes reports whether the same request may be served in a moment.
func passes(err error) bool {
	var lost *connectionError
	if errors.As(err, &lost) {
		return !lost.isFinal
	}
	for _, word := range passingWords {
		if startsWith(err, word) {
			return true
		}
	}
	return false
}

func startsWith(err error, prefix string) bool {
	var reply *replyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.text, prefix)
}

// isSilence reports whether what the caller is told means that nobody has answered. A client that is closed asks nobody.
func isSilence(err error) bool {
	var lost *connectionError
	return errors.As(err, &lost) && !lost.isFinal
}

// refusal is what the caller is told of an error of the transport.
func refusal(err error) error {
	var reply *replyError
	switch {
	case !errors.As(err, &reply):
		return &failure{"the server cannot be asked: " + err.Error(), []error{ErrUnreachable, err}}
	case strings.HasPrefix(reply.text, "DEADLOCK"):
		return &failure{reply.text, []error{ErrDeadlock, ErrRefused}}
	}
	return &failure{reply.text, []error{ErrRefused}}
}

// budget is what a call may take, counted from its start: connecting, tries and the pauses between them together.
//
// A request that the server does not answer, or answers with an error that passes, is repeated until the wait has
// passed, and a few times at least. All of it ends so long after the wait.
type budget struct {
	// Until when the call waits for a lock, and when it must have ended.
	until, end moment
	tries      int
	failures   int
	pause      time.Duration
	// A server has answered a try of it.
	isAnswered bool
}

func newBudget(long, wait time.Duration) *budget {
	until := after(time.Now(), wait)
	end := until
	if !end.IsZero() {
		end = after(end.Time, long)
	}
	return &budget{until: until, end: end, tries: triesMin}
}

// limit is how long a request may take that waits so long for a lock.
func (budget *budget) limit(wait time.Duration) time.Duration {
	return max(min(wait+answerMax, budget.end.left()), 0)
}

// heard takes note of an answer, which an error that a server replies is, too.
func (budget *budget) heard(reply any, err error) (any, error) {
	budget.isAnswered = budget.isAnswered || err == nil || isFromServer(err)
	return reply, err
}

// after pauses before the next try, or returns what the caller is told if there is none.
func (budget *budget) after(ctx context.Context, err error) error {
	if !isFromBelow(err) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	budget.failures++
	rest := budget.until.left()
	if rest <= 0 && budget.failures < budget.tries {
		rest = budget.end.left()
	}
	if rest <= 0 || !passes(err) {
		return refusal(err)
	}
	// The last pause is what is left, so that the last try is at the end of the wait.
	pause := min(budget.pause, rest)
	budget.pause = min(max(budget.pause*2, pauseMin), pauseMax)
	return sleep(ctx, pause)
}

// stamp is a moment before which a request was not sent. It moves on while a connection is opened for the request.
type stamp struct{ at atomic.Pointer[time.Time] }

type stampKey struct{}

// withStamp is a context for one request, and its stamp.
func withStamp(ctx context.Context) (context.Context, *stamp) {
	made := &stamp{}
	ctx = context.WithValue(ctx, stampKey{}, made)
	notYetSent(ctx)
	return ctx, made
}

// notYetSent moves the stamp of a request, if it has one, to now.
func notYetSent(ctx context.Context) {
	if made, isStamped := ctx.Value(stampKey{}).(*stamp); isStamped {
		now := time.Now()
		made.at.Store(&now)
	}
}

func (made *stamp) time() time.Time { return *made.at.Load() }

// moment is a point in time, or never, which is the zero value.
type moment struct{ time.Time }

// after is the moment so long after another one; never, after [Forever].
func after(begun time.Time, long time.Duration) moment {
	if long == Forever {
		return moment{}
	}
	return moment{begun.Add(long)}
}

// left is how long it is until then: negative afterwards, [Forever] for never.
func (until moment) left() time.Duration {
	if until.IsZero() {
		return Forever
	}
	return time.Until(until.Time)
}

func (until moment) hasCome() bool { return until.left() <= 0 }

// earlier returns the earlier one of two.
func earlier(one, other moment) moment {
	if one.IsZero() || !other.IsZero() && other.Before(one.Time) {
		return other
	}
	return one
}

// sleep returns after so long, or with the error of the context.
func sleep(ctx context.Context, long time.Duration) error {
	if long <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var passingWords = []string{
	"ASK ", "BUSY ", "CLUSTERDOWN", "ERR max number of clients", "LOADING ", "MASTERDOWN", "MISCONF ", "MOVED ", "OOM ",
	"QUARANTINE ", "READONLY ", "SHUTDOWN ", "TRYAGAIN ", "UNBLOCKED the server ",
}

const (
	// Tries of a request that fails, also where the wait has passed.
	triesMin = 3
	// The pauses between them, after the first one.
	pauseMin = 50 * time.Millisecond
	pauseMax = 2 * time.Second
	// The pauses between the requests of a wait for a lock of a plain server.
	pollMin = 20 * time.Millisecond
	pollMax = 500 * time.Millisecond
	// The longest pause after a renewal that failed.
	retryMax = time.Second
	// A session is asked for so often at least. That its connection has ended is seen at once.
	beatMax = 10 * time.Second
)
