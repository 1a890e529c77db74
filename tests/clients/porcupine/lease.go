package main

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// held is the state of a lock: by which token, and until when at least. No clock of the server is known, so a lease may
// last longer than that.
type held struct {
	token   string
	untilNs int64
	// isUnsettled: a call without an answer may yet end the lease earlier, or may have done so.
	isUnsettled bool
	// number is the fencing number of the holder, 0 if it is not known; highest is the highest of all that are known.
	number, highest uint64
}

// lease is the model of a lock.
var lease = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, input, _ any) (bool, any) { return step(state.(held), input.(call)) },
}

// step carries out a call at any moment between its two times.
func step(lock held, asked call) (bool, held) {
	isMine := lock.token == asked.Token
	// The lease certainly runs while the call is carried out, whenever that is.
	mayBeOver := lock.token == "" || asked.HeardNs >= lock.untilNs
	free := held{highest: lock.highest}
	switch asked.Answer {
	case "nobody":
		return mayBeOver, free
	case "holder":
		return lock.token == asked.Holder, lock
	case "":
		if isMine {
			lock.untilNs, lock.isUnsettled = min(lock.untilNs, asked.endNs()), true
		}
		return true, lock
	case "no":
		if !isMine {
			return true, lock
		}
		return mayBeOver, free
	}
	switch asked.Ask {
	case "acquire", "session":
		isHigher := asked.Fence == 0 || asked.Fence > lock.highest
		highest := max(lock.highest, asked.Fence)
		return mayBeOver && isHigher, held{token: asked.Token, untilNs: asked.endNs(), number: asked.Fence, highest: highest}
	case "extend":
		untilNs := asked.endNs()
		if lock.isUnsettled {
			untilNs = min(untilNs, lock.untilNs)
		}
		lock.untilNs = untilNs
		return isMine, lock
	case "release":
		return isMine, free
	case "token":
		isRight := asked.Fence == lock.number || (lock.number == 0 && asked.Fence > lock.highest)
		lock.number, lock.highest = asked.Fence, max(lock.highest, asked.Fence)
		return isMine && isRight, lock
	}
	return true, lock
}

// endNs is the earliest end of the lease that the call has asked for; of a call that ends it, the earliest moment of that.
func (asked call) endNs() int64 {
	switch asked.Ask {
	case "acquire", "extend":
		// The server counts the wait in whole milliseconds.
		return asked.SentNs + (max(asked.WaitedMs-1, 0)+asked.LeaseMs)*1_000_000
	case "session":
		return asked.hungUpNs
	default:
		return asked.SentNs
	}
}

// operations are those calls that say something of the lock, as Porcupine wants them. A call without an answer that may
// shorten a lease is carried out when it is sent: from then on the lease may be over at any time. A request for the lock
// without an answer is carried out before the lock was first seen to be its own; if it never was, it is left out. The lock of
// a session lasts until its connection may have ended.
func operations(calls []call) []porcupine.Operation {
	seenNs, hungUpNs := earliest{}, earliest{}
	for _, asked := range calls {
		switch {
		case asked.Answer == "holder":
			seenNs.note(asked.Holder, asked.HeardNs)
		case asked.Ask == "hangup":
			hungUpNs.note(asked.Token, asked.SentNs)
		case asked.Answer == "yes":
			seenNs.note(asked.Token, asked.HeardNs)
		}
	}
	var all []porcupine.Operation
	for _, asked := range calls {
		asked.hungUpNs = hungUpNs.of(asked.Token)
		isRequest := asked.Ask == "acquire" || asked.Ask == "session"
		isSeen := seenNs.of(asked.Token) < math.MaxInt64
		isAnswered := asked.Answer != ""
		switch {
		case asked.Ask == "hangup" || (isRequest && asked.Answer == "no"):
			continue
		case !isAnswered && (!isSeen || asked.Ask == "look" || asked.Ask == "token"):
			continue
		case !isAnswered && isRequest:
			asked.Answer, asked.HeardNs = "yes", seenNs.of(asked.Token)
		case !isAnswered:
			asked.HeardNs = asked.SentNs
		}
		all = append(all, porcupine.Operation{Input: asked, Call: asked.SentNs, Return: asked.HeardNs})
	}
	return all
}

// earliest has the earliest moment of something for each token.
type earliest map[string]int64

func (e earliest) note(token string, atNs int64) { e[token] = min(atNs, e.of(token)) }

func (e earliest) of(token string) int64 {
	if atNs, isThere := e[token]; isThere {
		return atNs
	}
	return math.MaxInt64
}
