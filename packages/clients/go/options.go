package locks

import (
	"crypto/rand"
	"encoding/hex"
	"math"
	"slices"
	"time"
)

// Forever is a wait without a limit.
const Forever = time.Duration(math.MaxInt64)

// Options says for what a lock is taken. The zero value is an exclusive lock that is refused at once if it is held,
// with a lease of 30 s that is renewed in the background.
type Options struct {
	// Lease is how long the lock lasts if it is neither renewed nor released: 1 ms to ten years, in whole
	// milliseconds. Default: 30 s.
	Lease time.Duration
	// Wait is how long to wait for a lock that is held, first come, first served; [Forever] without a limit. Default:
	// not at all.
	Wait time.Duration
	// Shared takes it together with other readers.
	Shared bool
	// Permits takes so many permits of a semaphore that has Of of them.
	Permits, Of int
	// Reentrant lets this [Lock], or this Owner, take it again. It is free after as many releases.
	Reentrant bool
	// Session has the lock end with its connection, and Delay after that, instead of with a lease. With a Delay it
	// goes on over another connection, if that is there in time.
	Session bool
	Delay   time.Duration
	// Meta is what those who ask for the holder see: at most 64 fields, 4 KiB in all.
	Meta map[string]string
	// Owner is the name under which the lock is taken, at most 1 KiB. Who knows it holds the lock, too. Default: a
	// random one for each acquisition.
	Owner string
	// NoRenewal leaves out the renewals in the background, at each third of the lease.
	NoRenewal bool
	// Priority is 0 to 9. A higher one goes ahead of requests that wait already, but not of those that came much earlier.
	Priority int
	// Modes is how each key of [Locks.All] and [Locks.AnyOf] is taken; one without a mode is exclusive.
	Modes map[string]Mode
	// StopBefore is how long before its deadline the hold is lost if no renewal has succeeded by then: it is the time
	// that the program has to stop. Less than the lease; of a session, than its Delay. Default: a tenth of that, at
	// most 1 s.
	StopBefore time.Duration
}

// Mode is how one of several keys is taken. The zero value is an exclusive lock.
type Mode struct {
	// Shared takes it together with other readers.
	Shared bool
	// Permits takes so many permits of a semaphore that has Of of them.
	Permits, Of int
}

// words is the words of a request; none for an exclusive lock.
func (mode Mode) words() ([]any, error) {
	switch {
	case mode == Mode{}:
		return nil, nil
	case mode == Mode{Shared: true}:
		return []any{"SHARED"}, nil
	case mode.Shared:
		return nil, invalid("a lock is one of shared, permits and reentrant")
	case mode.Permits < 1 || mode.Of < mode.Permits || mode.Of > permitsMax:
		return nil, invalid("permits: %d of %d", mode.Permits, mode.Of)
	}
	return []any{"PERMITS", mode.Permits, "OF", mode.Of}, nil
}

// terms is what a lock is taken for, checked, and with the owner of one acquisition.
type terms struct {
	keys        []string
	owner       string
	hasOwnOwner bool
	lease       time.Duration
	wait        time.Duration
	kind        []any
	// How several keys are taken, as words of the request.
	modes []any
	// One of several keys is taken, and not all of them.
	takesOne    bool
	priority    int
	meta        []any
	isReentrant bool
	isSession   bool
	delay       time.Duration
	renews      bool
	// 0 is the default.
	stopBefore time.Duration
}

// termsOf returns an [ErrInvalid] for what no server would grant.
func termsOf(keys []string, options Options, takesOne bool) (terms, error) {
	lease := options.Lease
	if lease == 0 {
		lease = leaseDefault
	}
	checked := terms{
		keys: distinct(keys), owner: options.Owner, hasOwnOwner: options.Owner != "", lease: lease.Truncate(time.Millisecond),
		wait: options.Wait, isReentrant: options.Reentrant, isSession: options.Session, delay: options.Delay,
		renews: !options.NoRenewal, stopBefore: options.StopBefore, priority: options.Priority,
	}
	checked.takesOne = takesOne && len(checked.keys) > 1
	if err := checked.setKinds(options); err != nil {
		return terms{}, err
	}
	size := 0
	for name, value := range options.Meta {
		checked.meta = append(checked.meta, name, value)
		size += len(name) + len(value)
	}
	switch {
	case len(keys) == 0 || slices.Contains(keys, ""):
		return terms{}, invalid("a lock needs a key, which is not empty")
	case options.Session && options.Lease != 0 || options.Delay != 0 && !options.Session:
		return terms{}, invalid("a session has no lease: it ends with its connection, and Delay is of sessions only")
	case len(checked.keys) > keysMax:
		return terms{}, invalid("keys: %d, at most %d", len(checked.keys), keysMax)
	case len(checked.keys) > 1 && (checked.kind != nil || len(options.Meta) > 0 || options.Session):
		return terms{}, invalid("several keys are locked with a lease, without meta, and in the ways that Modes has")
	case options.Priority < 0 || options.Priority > priorityMax:
		return terms{}, invalid("priority: %d, 0 to %d", options.Priority, priorityMax)
	case !isLease(lease):
		return terms{}, invalidLease(lease)
	case options.Wait < 0 || options.Delay < 0:
		return terms{}, invalid("wait: %v, delay: %v: not negative", options.Wait, options.Delay)
	case options.StopBefore < 0 || options.StopBefore >= checked.lasts():
		return terms{}, invalid("stop before: %v, less than the lease or the delay", options.StopBefore)
	case size > metaBytesMax || len(options.Meta) > metaFieldsMax:
		const text = "meta: %d bytes in %d fields, at most %d in %d"
		return terms{}, invalid(text, size, len(options.Meta), metaBytesMax, metaFieldsMax)
	case len(options.Owner) > ownerBytesMax:
		return terms{}, invalidOwner(options.Owner)
	}
	if checked.owner == "" {
		checked.owner = randomOwner()
	}
	return checked, nil
}

// setKinds sets how the keys are taken. The mode of a single key is its kind.
func (asked *terms) setKinds(options Options) error {
	kind, err := Mode{options.Shared, options.Permits, options.Of}.words()
	asked.kind = kind
	if err == nil && options.Reentrant {
		err = asked.setKind([]any{"REENTRANT"})
	}
	for key, mode := range options.Modes {
		if err != nil {
			return err
		}
		position := 1 + slices.Index(asked.keys, key)
		words, wrong := mode.words()
		switch {
		case position == 0:
			err = invalid("modes: %q is none of the keys", key)
		case wrong != nil || words == nil:
			err = wrong
		case len(asked.keys) == 1:
			err = asked.setKind(words)
		default:
			asked.modes = append(append(asked.modes, "MODE", position), words...)
		}
	}
	return err
}

func (asked *terms) setKind(kind []any) error {
	if asked.kind != nil {
		return invalid("a lock is one of shared, permits and reentrant")
	}
	asked.kind = kind
	return nil
}

func isLease(lease time.Duration) bool { return time.Millisecond <= lease && lease <= leaseMax }

func invalidLease(lease time.Duration) error {
	return invalid("lease: %v, 1 ms to ten years", lease)
}

func invalidOwner(owner string) error {
	return invalid("owner: %d bytes, 1 to %d", len(owner), ownerBytesMax)
}

// distinct is each key once, which is how often the server counts it.
func distinct(keys []string) []string {
	found := make([]string, 0, len(keys))
	for _, key := range keys {
		if !slices.Contains(found, key) {
			found = append(found, key)
		}
	}
	return found
}

// hasNewOwners: each acquisition has an owner of its own, and no other is granted a lock under it.
func (asked *terms) hasNewOwners() bool { return !asked.hasOwnOwner && !asked.isReentrant }

// anew is the terms of one acquisition.
func (asked terms) anew() terms {
	if asked.hasNewOwners() {
		asked.owner = randomOwner()
	}
	return asked
}

// lasts is for how long the lock is certainly held after a sign of life; [Forever] for a session that ends with its
// connection.
func (asked *terms) lasts() time.Duration {
	switch {
	case !asked.isSession:
		return asked.lease
	case asked.delay > 0:
		return asked.delay
	}
	return Forever
}

// stopsBefore is how long before its deadline a hold of this lease is lost.
func (asked *terms) stopsBefore(lease time.Duration) time.Duration {
	if asked.stopBefore > 0 {
		return asked.stopBefore
	}
	return min(lease/10, stopBeforeMax)
}

// lacking is what a server without LOCK commands cannot do of it; empty if nothing.
func (asked *terms) lacking() string {
	switch {
	case asked.takesOne:
		return "one of several keys"
	case len(asked.keys) > 1:
		return "several keys at once"
	case asked.isReentrant:
		return "reentrant locks"
	case len(asked.kind) == 1:
		return "shared locks"
	case len(asked.kind) > 1:
		return "permits locks"
	case asked.isSession:
		return "sessions"
	case len(asked.meta) > 0:
		return "meta"
	case asked.priority > 0:
		return "priority"
	}
	return ""
}

// request is the words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for several keys.
func (asked *terms) request(wait time.Duration) []any {
	words := make([]any, 0, 16+len(asked.keys)+len(asked.modes)+len(asked.meta))
	if len(asked.keys) > 1 {
		words = append(words, "LOCK.MACQUIRE", len(asked.keys))
	} else {
		words = append(words, "LOCK.ACQUIRE")
	}
	for _, key := range asked.keys {
		words = append(words, key)
	}
	words = append(words, asked.owner)
	if asked.takesOne {
		words = append(words, "ANY", 1)
	}
	words = append(words, asked.modes...)
	if asked.isSession {
		words = append(words, "SESSION", "DELAY", asked.delay.Milliseconds())
	} else {
		words = append(words, "LEASE", asked.lease.Milliseconds())
	}
	if wait > 0 {
		words = append(words, "WAIT", (wait + time.Millisecond - 1).Milliseconds())
	} else if !asked.takesOne {
		// With ANY, such a reply would have keys where a refusal has names.
		words = append(words, "JUSTTOKEN")
	}
	if asked.priority > 0 {
		words = append(words, "PRIORITY", asked.priority)
	}
	words = append(append(words, "WHY"), asked.kind...)
	if len(asked.meta) > 0 {
		words = append(append(words, "META"), asked.meta...)
	}
	return words
}

// The longest StopBefore that is a default.
const stopBeforeMax = time.Second

func randomOwner() string {
	var random [16]byte
	// It never fails.
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:])
}
