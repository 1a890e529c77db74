package redlatchtest

import "time"

// Where says which requests a fault meets: those that match all of these. Zero values match all. Key and Client are patterns;
// Script is a SHA-1, or what a known script is for: "acquire", "extend", "release".
type Where struct {
	Command string
	Key     string
	Script  string
	Client  string
	Node    int
	Nth     int
	Every   int
	// Probability is a share of the matching requests, which Seed repeats. Default seed: 1.
	Probability float64
	Seed        int
	Times       int
}

// Faults are the faults of a namespace.
type Faults struct {
	namespace *Namespace
}

// Fault is one of them.
type Fault struct {
	// ID is its number.
	ID     int
	faults *Faults
}

// FaultState is a fault as the server lists it: the requests that Met its conditions, and how often it acted.
type FaultState struct {
	ID   int
	Rule string
	Met  int
	Hits int
}

// DropReply: carried out; the connection is closed without the reply.
func (faults *Faults) DropReply(where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "DROP-AFTER")
}

// DropBefore: not carried out; the connection is closed.
func (faults *Faults) DropBefore(where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "DROP-BEFORE")
}

// HalfReply: carried out; the connection is closed after half of the reply.
func (faults *Faults) HalfReply(where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "HALF-REPLY")
}

// Reset: not carried out; the connection is reset.
func (faults *Faults) Reset(where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "RESET")
}

// Delay: carried out later.
func (faults *Faults) Delay(by time.Duration, where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "DELAY", millis(by))
}

// Stall: carried out now, answered later.
func (faults *Faults) Stall(by time.Duration, where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "STALL", millis(by))
}

// Error: not carried out; the error is the reply.
func (faults *Faults) Error(text string, where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "ERROR", text)
}

// PauseClient: carried out and answered; then that client is neither read nor answered for so long.
func (faults *Faults) PauseClient(by time.Duration, where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "PAUSE-CLIENT", millis(by))
}

// ExpireKey: carried out; then the leases of its keys end.
func (faults *Faults) ExpireKey(where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "EXPIRE-KEY")
}

// Duplicate: carried out twice; the second reply is the reply.
func (faults *Faults) Duplicate(where Where) *Fault {
	faults.namespace.t.Helper()
	return faults.Add(where, "DUPLICATE")
}

// Add adds a fault by the name and the parameters of its action.
func (faults *Faults) Add(where Where, action ...any) *Fault {
	faults.namespace.t.Helper()
	words := append([]any{"TEST.FAULT", "ADD"}, where.words()...)
	id := ask[int](faults.namespace, append(append(words, "DO"), action...)...)
	return &Fault{ID: id, faults: faults}
}

// List is all faults.
func (faults *Faults) List() []FaultState {
	faults.namespace.t.Helper()
	return ask[[]FaultState](faults.namespace, "TEST.FAULT", "LIST")
}

// Clear removes all faults, and returns how many there were.
func (faults *Faults) Clear() int {
	faults.namespace.t.Helper()
	return ask[int](faults.namespace, "TEST.FAULT", "CLEAR")
}

// Remove removes the fault. False if it is gone already.
func (fault *Fault) Remove() bool {
	fault.faults.namespace.t.Helper()
	return ask[int](fault.faults.namespace, "TEST.FAULT", "REMOVE", fault.ID) == 1
}

// Hits is how often it acted.
func (fault *Fault) Hits() int {
	fault.faults.namespace.t.Helper()
	return fault.state().Hits
}

// Met is how many requests matched its conditions.
func (fault *Fault) Met() int {
	fault.faults.namespace.t.Helper()
	return fault.state().Met
}

func (fault *Fault) state() FaultState {
	fault.faults.namespace.t.Helper()
	for _, state := range fault.faults.List() {
		if state.ID == fault.ID {
			return state
		}
	}
	fault.faults.namespace.t.Fatalf("redlatch: fault %d has been removed", fault.ID)
	return FaultState{}
}

func (where Where) words() []any {
	if where.Probability != 0 && where.Seed == 0 {
		where.Seed = 1
	}
	var words []any
	words = option(words, "COMMAND", where.Command)
	words = option(words, "KEY", where.Key)
	words = option(words, "SCRIPT", where.Script)
	words = option(words, "CLIENT", where.Client)
	words = option(words, "NODE", where.Node)
	words = option(words, "NTH", where.Nth)
	words = option(words, "EVERY", where.Every)
	words = option(words, "PROBABILITY", where.Probability)
	words = option(words, "SEED", where.Seed)
	return option(words, "TIMES", where.Times)
}
