package locks

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// server is what a client knows of its server, and which locks it holds there. Its methods decide which request comes
// next, and what an answer means.
type server struct {
	transport
	// How long a call may take beside its wait.
	budget time.Duration
	// It has no LOCK commands.
	isPlain atomic.Bool
	guard   sync.Mutex
	holds   map[*Held]struct{}
}

// grant is a lock that was granted.
type grant struct {
	token int64
	// A moment at which the lease had not begun.
	begun     time.Time
	isPlain   bool
	session   session
	sessionID string
	// Of one of several keys: which it is.
	key string
}

// acquire takes a lock, waiting for it as long as the terms say. A request whose answer is lost is sent again for the
// same owner.
func (server *server) acquire(ctx context.Context, asked *terms, trying *budget) (*grant, error) {
	for {
		wasPlain := server.isPlain.Load()
		granted, err := server.tryToAcquire(ctx, asked, trying)
		if err == nil {
			return granted, nil
		}
		if isUnknownCommand(err) {
			server.isPlain.Store(true)
			if lacking := asked.lacking(); lacking != "" {
				return nil, notSupported(lacking)
			}
			if !wasPlain {
				continue
			}
		}
		if err := trying.after(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (server *server) tryToAcquire(ctx context.Context, asked *terms, trying *budget) (*grant, error) {
	if server.isPlain.Load() && asked.lacking() == "" {
		return server.acquirePlainly(ctx, asked, trying, asked.hasOwnOwner || trying.failures > 0)
	}
	if asked.isReentrant && trying.failures > 0 {
		// The request may have been carried out: another one would count twice.
		repeated, err := server.reentered(ctx, asked, trying)
		if repeated != nil || err != nil {
			return repeated, err
		}
	}
	if !asked.isSession {
		return server.acquireNatively(ctx, server, asked, trying)
	}
	session, err := server.connect(ctx, asked.keys[0], trying.limit(0))
	if err != nil {
		return nil, err
	}
	id, err := trying.heard(session.ask(ctx, asked.keys[0], trying.limit(0), "LOCK.SESSION", "ID"))
	if err == nil {
		var granted *grant
		if granted, err = server.acquireNatively(ctx, session, asked, trying); err == nil {
			granted.session, granted.sessionID = session, text(id)
			return granted, nil
		}
	}
	session.close()
	return nil, err
}

func (server *server) acquireNatively(ctx context.Context, on channel, asked *terms, trying *budget) (*grant, error) {
	key := asked.keys[0]
	for {
		wait := min(max(trying.until.left(), 0), waitMax)
		ask := on.ask
		if wait > 0 {
			ask = on.askWaiting
		}
		stamped, sent := withStamp(ctx)
		reply, err := trying.heard(ask(stamped, key, trying.limit(wait), asked.request(wait)...))
		if err != nil {
			return nil, err
		}
		// A request that does not wait is answered with the token alone.
		token, key := number(reply, number(field(reply, "token"), 0)), ""
		for got, its := range fieldsOf(field(reply, "locks")) {
			token, key = number(its, 0), got
		}
		if token != 0 {
			// The lease began when the wait had ended.
			begun := sent.time().Add(millis(max(number(field(reply, "waited"), 0)-1, 0)))
			if now := time.Now(); begun.After(now) {
				begun = now
			}
			return &grant{token: token, begun: begun, key: key}, nil
		}
		if wait < waitMax {
			return nil, server.heldBy(ctx, asked.keys, fieldsOf(field(reply, "refused")), trying)
		}
	}
}

// reentered returns the grant of a reentrant lock whose answer was lost; nil if the request was not carried out.
func (server *server) reentered(ctx context.Context, asked *terms, trying *budget) (*grant, error) {
	permits, err := server.permitsOf(ctx, asked, trying)
	if err != nil || permits <= server.timesHeld(asked) {
		return nil, err
	}
	stamped, sent := withStamp(ctx)
	key := asked.keys[0]
	words := []any{"LOCK.EXTEND", key, asked.owner, "LEASE", asked.lease.Milliseconds()}
	reply, err := server.ask(stamped, key, trying.limit(0), words...)
	token := number(field(reply, "token"), 0)
	if err != nil || token == 0 {
		return nil, err
	}
	return &grant{token: token, begun: sent.time()}, nil
}

// permitsOf is how often the owner holds the lock.
func (server *server) permitsOf(ctx context.Context, asked *terms, trying *budget) (int64, error) {
	reply, err := trying.heard(server.ask(ctx, asked.keys[0], trying.limit(0), "LOCK.WHO", asked.keys[0]))
	holders, _ := field(reply, "holders").([]any)
	count := int64(0)
	for _, each := range holders {
		if holder := fieldsOf(each); text(holder["owner"]) == asked.owner {
			count += number(holder["permits"], 0)
		}
	}
	return count, err
}

// timesHeld is how often this client holds a reentrant lock.
func (server *server) timesHeld(asked *terms) int64 {
	server.guard.Lock()
	defer server.guard.Unlock()
	count := int64(0)
	for held := range server.holds {
		if held.terms.owner == asked.owner && held.terms.keys[0] == asked.keys[0] {
			count++
		}
	}
	return count
}

func (server *server) acquirePlainly(ctx context.Context, asked *terms, trying *budget, mayBeOurs bool) (*grant, error) {
	key, pause := asked.keys[0], pollMin
	for {
		stamped, sent := withStamp(ctx)
		words := []any{"SET", key, asked.owner, "NX", "PX", asked.lease.Milliseconds()}
		reply, err := trying.heard(server.ask(stamped, key, trying.limit(0), words...))
		isSet := reply != nil
		if err == nil && !isSet && mayBeOurs {
			mayBeOurs = false
			stamped, sent = withStamp(ctx)
			isSet, err = server.extendPlainly(stamped, key, asked.owner, asked.lease, trying)
		}
		if err != nil {
			return nil, err
		}
		if isSet {
			return &grant{begun: sent.time(), isPlain: true}, nil
		}
		left := trying.until.left()
		if left <= 0 {
			holder, err := server.holderPlainly(ctx, key, trying)
			if err != nil {
				return nil, err
			}
			return nil, &HeldError{key, holder}
		}
		// A part of the pause is random, so that those who wait do not ask in step.
		if err := sleep(ctx, min(left, pause/2+rand.N(pause/2))); err != nil {
			return nil, err
		}
		pause = min(pause*2, pollMax)
	}
}

// extend starts the lease of a hold anew. It is lost if the server does not know it.
func (server *server) extend(
	ctx context.Context, on channel, held *Held, lease time.Duration, trying *budget,
) error {
	stamped, sent := withStamp(ctx)
	var words []any
	if !held.terms.isSession {
		words = []any{"LEASE", lease.Milliseconds()}
	}
	words = append(words, "TOKEN", held.token)
	for _, key := range held.terms.keys {
		isHeld, err := false, error(nil)
		if held.isPlain {
			isHeld, err = server.extendPlainly(stamped, key, held.terms.owner, lease, trying)
		} else {
			var reply any
			limit := min(trying.limit(0), held.leaseNow()/6)
			reply, err = on.ask(stamped, key, limit, append([]any{"LOCK.EXTEND", key, held.terms.owner}, words...)...)
			// The owner may hold it anew.
			isHeld = number(field(reply, "token"), 0) == held.token
		}
		if err != nil {
			return err
		}
		if !isHeld {
			held.lose(NotHeld, "")
			return nil
		}
		// The first of several keys was extended first.
		stamped = ctx
	}
	held.renewed(sent.time(), lease)
	return nil
}

// transfer hands a lock over. After a lost answer it is not asked again: the next renewal finds whether the lock is still
// held.
func (server *server) transfer(
	ctx context.Context, held *Held, owner string, lease time.Duration, trying *budget,
) (int64, error) {
	key := held.terms.keys[0]
	words := []any{"LOCK.TRANSFER", key, held.terms.owner, "TO", owner, "TOKEN", held.token}
	if lease != 0 {
		words = append(words, "LEASE", lease.Milliseconds())
	}
	for {
		reply, err := server.ask(ctx, key, trying.limit(0), words...)
		if err == nil {
			return number(field(reply, "token"), 0), nil
		}
		if startsWith(err, "NOTHELD ") {
			held.lose(NotHeld, "")
			return 0, held.whyOver()
		}
		if !isFromServer(err) {
			return 0, refusal(err)
		}
		if err := trying.after(ctx, err); err != nil {
			return 0, err
		}
	}
}

// release gives back every key. False if not all of them were held. A hold that is known to be lost is tried once: it
// ends by itself.
func (server *server) release(ctx context.Context, held *Held) (bool, error) {
	trying := newBudget(server.budget, 0)
	if held.isLost() {
		trying.tries = 1
	}
	wasHeld := true
	for _, key := range held.terms.keys {
		isReleased, err := server.releaseKey(ctx, held, key, trying)
		if err != nil {
			return false, err
		}
		wasHeld = wasHeld && isReleased
		held.mayBeReleased = true
	}
	return wasHeld, nil
}

func (server *server) releaseKey(ctx context.Context, held *Held, key string, trying *budget) (bool, error) {
	failedBefore := trying.failures
	for {
		hasFailed := trying.failures > failedBefore
		count, err := server.tryToRelease(ctx, held, key, hasFailed, trying)
		if err == nil {
			// A request whose answer was lost may have released it.
			return count == 1 || hasFailed && !held.isLost(), nil
		}
		var refused *replyError
		held.mayBeReleased = held.mayBeReleased || !errors.As(err, &refused)
		if err := trying.after(ctx, err); err != nil {
			return false, err
		}
	}
}

func (server *server) tryToRelease(
	ctx context.Context, held *Held, key string, hasFailed bool, trying *budget,
) (int64, error) {
	asked := &held.terms
	if held.isPlain {
		return server.runScript(ctx, trying, releaseScript, key, asked.owner)
	}
	if asked.isReentrant && hasFailed {
		permits, err := server.permitsOf(ctx, asked, trying)
		if err != nil {
			return 0, err
		}
		if permits < server.timesHeld(asked)+1 {
			return 1, nil
		}
	}
	reply, err := server.ask(ctx, key, trying.limit(0), "LOCK.RELEASE", key, asked.owner, "TOKEN", held.token)
	return number(reply, 0), err
}

// giveUp releases what an acquisition that was cancelled may have been granted. Of an owner that others may know,
// nothing is known to be this acquisition's.
func (server *server) giveUp(ctx context.Context, asked *terms) {
	if !asked.hasNewOwners() {
		return
	}
	trying := newBudget(server.budget, 0)
	for _, key := range asked.keys {
		// What cannot be released ends with its lease.
		if server.isPlain.Load() {
			_, _ = server.runScript(ctx, trying, releaseScript, key, asked.owner)
		} else {
			_, _ = server.ask(ctx, key, trying.limit(0), "LOCK.RELEASE", key, asked.owner)
		}
	}
}

// lockedBy is who holds a key; nil if nobody does.
func (server *server) lockedBy(ctx context.Context, key string) (*Holder, error) {
	trying := newBudget(server.budget, 0)
	for {
		wasPlain := server.isPlain.Load()
		holder, err := server.holder(ctx, key, trying)
		if err == nil {
			return holder, nil
		}
		if isUnknownCommand(err) && !wasPlain {
			server.isPlain.Store(true)
		} else if err := trying.after(ctx, err); err != nil {
			return nil, err
		}
	}
}

func (server *server) holder(ctx context.Context, key string, trying *budget) (*Holder, error) {
	if server.isPlain.Load() {
		return server.holderPlainly(ctx, key, trying)
	}
	reply, err := server.ask(ctx, key, trying.limit(0), "LOCK.WHO", key)
	return holderOf(reply), err
}

// heldBy is the refusal, with what LOCK.WHO says of the holder, or else what the answer itself says.
func (server *server) heldBy(
	ctx context.Context, keys []string, refused map[string]any, trying *budget,
) error {
	for _, key := range keys {
		reply, err := server.ask(ctx, key, trying.limit(0), "LOCK.WHO", key)
		if err != nil {
			break // A user may lack the right.
		}
		if holder := holderOf(reply); holder != nil {
			return &HeldError{holder.Key, holder}
		}
	}
	return &HeldError{keys[0], holderOfRefusal(keys[0], refused)}
}

func (server *server) holderPlainly(ctx context.Context, key string, trying *budget) (*Holder, error) {
	holder := &Holder{Key: key, Left: -1, Kind: "exclusive", Holders: 1, Permits: 1, Waiters: -1}
	owner, err := server.ask(ctx, key, trying.limit(0), "GET", key)
	if startsWith(err, "WRONGTYPE") {
		holder.Kind = "none"
		return holder, nil
	}
	if err != nil || owner == nil {
		return nil, err
	}
	left, err := server.ask(ctx, key, trying.limit(0), "PTTL", key)
	holder.Owner, holder.Left = text(owner), leftOf(left)
	return holder, err
}

func (server *server) extendPlainly(
	ctx context.Context, key, owner string, lease time.Duration, trying *budget,
) (bool, error) {
	count, err := server.runScript(ctx, trying, extendScript, key, owner, lease.Milliseconds())
	if isWrongTypeInScript(err) {
		return false, nil
	}
	return count == 1, err
}

// isWrongTypeInScript: some servers put the error of a command into the text of one of the script.
func isWrongTypeInScript(err error) bool {
	var reply *replyError
	return errors.As(err, &reply) && strings.Contains(reply.text, "WRONGTYPE")
}

func (server *server) runScript(
	ctx context.Context, trying *budget, script, key string, words ...any,
) (int64, error) {
	digest := sha1.Sum([]byte(script))
	hashed := append([]any{"EVALSHA", hex.EncodeToString(digest[:]), 1, key}, words...)
	reply, err := server.ask(ctx, key, trying.limit(0), hashed...)
	if startsWith(err, "NOSCRIPT") {
		reply, err = server.ask(ctx, key, trying.limit(0), append([]any{"EVAL", script, 1, key}, words...)...)
	}
	return number(reply, 0), err
}

// isTold takes a message of the channel `__lock__:key`: `lost <token> <reason> [text]`.
func (server *server) isTold(channel, message string) {
	key := strings.TrimPrefix(channel, lostChannel)
	words := strings.SplitN(message, " ", 4)
	if len(words) < 3 || words[0] != "lost" {
		return
	}
	for _, held := range server.allHolds() {
		if held.isOf(key, words[1]) {
			held.lose(Reason(words[2]), strings.Join(words[3:], ""))
		}
	}
}

func (server *server) allHolds() []*Held {
	server.guard.Lock()
	defer server.guard.Unlock()
	holds := make([]*Held, 0, len(server.holds))
	for held := range server.holds {
		holds = append(holds, held)
	}
	return holds
}

func (server *server) keep(held *Held) {
	server.guard.Lock()
	defer server.guard.Unlock()
	server.holds[held] = struct{}{}
}

func (server *server) forget(held *Held) {
	server.guard.Lock()
	defer server.guard.Unlock()
	delete(server.holds, held)
}

const (
	lostChannel   = "__lock__:"
	releaseScript = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\nreturn redis.call('del', KEYS[1])\n"
	extendScript  = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\n" +
		"return redis.call('pexpire', KEYS[1], ARGV[2])\n"
)
