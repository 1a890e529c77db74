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
	// StopBefore is how long before its deadline the hold is lost if no renewal has succeeded by then: it is the time
	// that the program has to stop. Less than the lease; of a session, than its Delay. Default: a tenth of that, at
	// most 1 s.
	StopBefore time.Duration
}

// terms is what a lock is taken for, checked, and with the owner of one acquisition.
type terms struct {
	keys        []string
	owner       string
	hasOwnOwner bool
	lease       time.Duration
	wait        time.Duration
	kind        []any
	meta        []any
	isReentrant bool
	isSession   bool
	delay       time.Duration
	renews      bool
	// 0 is the default.
	stopBefore time.Duration
}

// termsOf returns an [ErrInvalid] for what no server would grant.
func termsOf(keys []string, options Options) (terms, error) {
	lease := options.Lease
	if lease == 0 {
		lease = leaseDefault
	}
	checked := terms{
		keys: distinct(keys), owner: options.Owner, hasOwnOwner: options.Owner != "", lease: lease.Truncate(time.Millisecond),
		wait: options.Wait, isReentrant: options.Reentrant, isSession: options.Session, delay: options.Delay,
		renews: !options.NoRenewal, stopBefore: options.StopBefore,
	}
	kinds := 0
	if options.Shared {
		checked.kind, kinds = []any{"SHARED"}, kinds+1
	}
	if options.Reentrant {
		checked.kind, kinds = []any{"REENTRANT"}, kinds+1
	}
	if options.Permits != 0 || options.Of != 0 {
		checked.kind, kinds = []any{"PERMITS", options.Permits, "OF", options.Of}, kinds+1
	}
	size := 0
	for name, value := range options.Meta {
		checked.meta = append(checked.meta, name, value)
		size += len(name) + len(value)
	}
	switch {
	case kinds > 1:
		return terms{}, invalid("a lock is one of shared, permits and reentrant")
	case kinds == 1 && checked.kind[0] == "PERMITS" && (options.Permits < 1 || options.Of < options.Permits || options.Of > permitsMax):
		return terms{}, invalid("permits: %d of %d", options.Permits, options.Of)
	case len(keys) == 0 || slices.Contains(keys, ""):
		return terms{}, invalid("a lock needs a key, which is not empty")
	case options.Session && options.Lease != 0 || options.Delay != 0 && !options.Session:
		return terms{}, invalid("a session has no lease: it ends with its connection, and Delay is of sessions only")
	case len(checked.keys) > 1 && (kinds > 0 || len(options.Meta) > 0 || options.Session):
		return terms{}, invalid("several keys are locked exclusively, with a lease, and without meta")
	case lease < time.Millisecond || lease > leaseMax:
		return terms{}, invalid("lease: %v, 1 ms to ten years", lease)
	case options.Wait < 0 || options.Delay < 0:
		return terms{}, invalid("wait: %v, delay: %v: not negative", options.Wait, options.Delay)
	case options.StopBefore < 0 || options.StopBefore >= checked.lasts():
		return terms{}, invalid("stop before: %v, less than the lease or the delay", options.StopBefore)
	case size > metaBytesMax || len(options.Meta) > metaFieldsMax:
		const text = "meta: %d bytes in %d fields, at most %d in %d"
		return terms{}, invalid(text, size, len(options.Meta), metaBytesMax, metaFieldsMax)
	case len(options.Owner) > ownerBytesMax:
		return terms{}, invalid("owner: %d bytes, at most %d", len(options.Owner), ownerBytesMax)
	}
	if checked.owner == "" {
		checked.owner = randomOwner()
	}
	return checked, nil
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
	}
	return ""
}

// request is the words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for several keys.
func (asked *terms) request(wait time.Duration) []any {
	words := make([]any, 0, 12+len(asked.keys)+len(asked.meta))
	if len(asked.keys) > 1 {
		words = append(words, "LOCK.MACQUIRE", len(asked.keys))
	} else {
		words = append(words, "LOCK.ACQUIRE")
	}
	for _, key := range asked.keys {
		words = append(words, key)
	}
	words = append(words, asked.owner)
	if asked.isSession {
		words = append(words, "SESSION", "DELAY", asked.delay.Milliseconds())
	} else {
		words = append(words, "LEASE", asked.lease.Milliseconds())
	}
	if wait > 0 {
		words = append(words, "WAIT", (wait + time.Millisecond - 1).Milliseconds())
	} else {
		words = append(words, "JUSTTOKEN")
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
