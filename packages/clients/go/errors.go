package locks

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What can go wrong with a lock, for [errors.Is].
var (
	// ErrHeld: somebody else holds the lock, and the wait has ended. The error is a [*HeldError].
	ErrHeld = errors.New("the lock is held")
	// ErrLost: the lock is held no longer, somebody else may have it. The error is a [*LostError].
	ErrLost = errors.New("the lock is lost")
	// ErrNotSupported: the server has no LOCK commands, and plain Redis commands cannot do this.
	ErrNotSupported = errors.New("this takes a server with LOCK commands, which this one lacks")
	// ErrRefused: the server refuses the request. The text is the server's.
	ErrRefused = errors.New("the server refuses the request")
	// ErrDeadlock: to wait would close a circle of owners, each waiting for a lock of the next. It is an ErrRefused, too.
	ErrDeadlock = errors.New("to wait would be a deadlock")
	// ErrUnreachable: the server cannot be asked. What was held is held until its lease ends.
	ErrUnreachable = errors.New("the server cannot be asked")
	// ErrStaleToken: the database has seen a higher token, so somebody else has had the lock since. The transaction
	// must be rolled back.
	ErrStaleToken = errors.New("the fencing token is stale")
	// ErrInvalid: no server would grant these options. Nothing was sent.
	ErrInvalid = errors.New("invalid options")
	// ErrClosed: the [Locks] are closed.
	ErrClosed = errors.New("these locks are closed")
)

// HeldError says that somebody else holds the lock, and the wait has ended. Its text says who, why and since when,
// and how to break the lock.
type HeldError struct {
	Key string
	// Holder is who holds it. Nil if it was released in the meantime, or the server does not tell.
	Holder *Holder
}

func (refusal *HeldError) Error() string {
	text := shown(refusal.Key) + " is held"
	if holder := refusal.Holder; holder != nil {
		text += "\n" + holder.String()
		if holder.Token != 0 {
			text += fmt.Sprintf("\nTo take it by force: redlatch break %s --token %d", quoted(shown(refusal.Key)), holder.Token)
		}
	}
	return text
}

// Is makes it an [ErrHeld].
func (refusal *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says that the lock is held no longer: somebody else may have it.
type LostError struct {
	Key string
	// Token is the fencing token; 0 from a server without LOCK commands.
	Token  int64
	Reason Reason
	// Text is the REASON of LOCK.BREAK, if there is one.
	Text string
}

func (lost *LostError) Error() string {
	text := shown(lost.Key) + " is lost: " + lost.Reason.meaning()
	if lost.Text != "" {
		text += ": " + shown(lost.Text)
	}
	return text
}

// Is makes it an [ErrLost].
func (lost *LostError) Is(target error) bool { return target == ErrLost }

// Reason says why a lock is lost: as the server tells it, or as it is found here. The server may still count as held a
// lock that is [Unrenewed]. Only [Held.Extend] and [Held.Leave] fail for [Released].
type Reason string

// failure is an error with a text of its own, which is of one or several kinds.
type failure struct {
	text  string
	kinds []error
}

func (failed *failure) Error() string   { return failed.text }
func (failed *failure) Unwrap() []error { return failed.kinds }

func invalid(format string, values ...any) error {
	return &failure{fmt.Sprintf(format, values...), []error{ErrInvalid}}
}

func notSupported(what string) error {
	return &failure{what + ": " + ErrNotSupported.Error(), []error{ErrNotSupported}}
}

// shown is a text of others, with escapes for what cannot be seen, moves the cursor or turns text around.
func shown(text string) string {
	var escaped strings.Builder
	for len(text) > 0 {
		char, size := utf8.DecodeRuneInString(text)
		switch {
		case char == utf8.RuneError && size == 1:
			fmt.Fprintf(&escaped, `\x%02x`, text[0])
		case unicode.IsPrint(char):
			escaped.WriteRune(char)
		default:
			quoted := strconv.QuoteRuneToASCII(char)
			escaped.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return escaped.String()
}

// quoted is a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
