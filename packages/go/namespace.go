package redlatchtest

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Namespace is a server of its own inside of a server: keys, clients, channels, scripts, settings, clock, faults and history.
// It is made when the first client enters it.
type Namespace struct {
	// Name is its name.
	Name string

	server *Server
	t      testing.TB
	open   map[int]*connection
	// The ports of nodes that this namespace has told not to answer. The other ones are asked first.
	silent map[int]bool
}

// NamespaceState is a namespace as the server lists it.
type NamespaceState struct {
	Name    string
	Clients int
	Keys    int
	// Mode is "running", "frozen" or "auto".
	Mode string
}

// Filter chooses events. Key and Client are patterns; zero values choose all.
type Filter struct {
	Since   int64
	Key     string
	Command string
	Client  string
	Count   int
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	EventConnect    EventKind = "connect"
	EventDisconnect EventKind = "disconnect"
	EventRequest    EventKind = "request"
	EventReply      EventKind = "reply"
	EventGranted    EventKind = "granted"
	EventRenewed    EventKind = "renewed"
	EventReleased   EventKind = "released"
	EventExpired    EventKind = "expired"
	EventRefused    EventKind = "refused"
	EventWaits      EventKind = "waits"
	EventMissed     EventKind = "missed"
	EventFault      EventKind = "fault"
	EventFailover   EventKind = "failover"
)

// Event is something that happened. At is the namespace's clock in Unix milliseconds, Real the machine's in microseconds. Request is
// the number of the request that it belongs to, Lease is in milliseconds.
type Event struct {
	ID      int64
	Kind    EventKind
	At      int64
	Real    int64
	Node    int
	Client  any
	Name    string
	Library string
	Request int64
	Command string
	Args    []string
	Key     string
	Reply   any
	Token   int64
	Holder  string
	Lease   int64
	Fault   int
	Text    string
}

// Finding is something that is wrong: the rule that is broken, and the events that show it.
type Finding struct {
	Rule   string
	Key    string
	Text   string
	Events []int64
	Lines  []string
}

// URL is what clients are given: redis://:namespace%3Aorders@127.0.0.1:40000.
func (namespace *Namespace) URL() string {
	return namespace.url(namespace.server.Ports[0])
}

// URLs are those of all nodes.
func (namespace *Namespace) URLs() []string {
	urls := make([]string, 0, len(namespace.server.Ports))
	for _, port := range namespace.server.Ports {
		urls = append(urls, namespace.url(port))
	}
	return urls
}

// Addr is the address of the first node: 127.0.0.1:40000. Clients need the [Namespace.Password], too.
func (namespace *Namespace) Addr() string {
	return net.JoinHostPort(namespace.server.host, strconv.Itoa(namespace.server.Ports[0]))
}

// Password leads into the namespace.
func (namespace *Namespace) Password() string {
	return "namespace:" + namespace.Name
}

// Clock is the clock of all nodes.
func (namespace *Namespace) Clock() *Clock {
	return &Clock{namespace}
}

// Faults are the faults of all nodes.
func (namespace *Namespace) Faults() *Faults {
	return &Faults{namespace}
}

// Nodes are the nodes, numbered from 1.
func (namespace *Namespace) Nodes() *NodeSet {
	return &NodeSet{namespace}
}

// Slots are the slots of its cluster, if the server is one.
func (namespace *Namespace) Slots() *SlotSet {
	return &SlotSet{namespace}
}

// History is what happened, oldest first: requests, replies, expiries, grants, faults, clients.
func (namespace *Namespace) History(filter Filter) []Event {
	namespace.t.Helper()
	return ask[[]Event](namespace, append([]any{"TEST.HISTORY"}, filter.words()...)...)
}

// Calls says how often each command was called.
func (namespace *Namespace) Calls(filter Filter) map[string]int {
	namespace.t.Helper()
	return ask[map[string]int](namespace, append([]any{"TEST.CALLS"}, filter.words()...)...)
}

// Check is what clients did wrong with locks. Empty if nothing.
func (namespace *Namespace) Check() []Finding {
	namespace.t.Helper()
	return ask[[]Finding](namespace, "TEST.CHECK")
}

// Timeline draws what happened, a lane for each client. The format is "text" or "html".
func (namespace *Namespace) Timeline(format string) (string, error) {
	command := exec.Command(namespace.server.binary, "timeline", namespace.URL(), "--format", format)
	var complaint bytes.Buffer
	command.Stderr = &complaint
	drawn, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("redlatch timeline: %s (%w)", strings.TrimSpace(complaint.String()), err)
	}
	return string(drawn), nil
}

// Call sends a command to the first node that can be reached. Replies are as in [Server.Call].
func (namespace *Namespace) Call(words ...any) (any, error) {
	var lost error
	for _, port := range namespace.answering() {
		if namespace.open[port] == nil {
			opened, err := dial(namespace.server.host, port, namespace.Password())
			if err != nil {
				lost = err
				continue
			}
			namespace.open[port] = opened
		}
		reply, err := namespace.open[port].call(words...)
		if err != nil && !isRefusal(err) {
			namespace.disconnect(port)
		}
		return reply, err
	}
	return nil, lost
}

// silence asks other nodes than this one from now on, if there are others.
func (namespace *Namespace) silence(node int) {
	if 0 < node && node <= len(namespace.server.Ports) {
		port := namespace.server.Ports[node-1]
		namespace.silent[port] = true
		namespace.disconnect(port)
	}
}

func (namespace *Namespace) disconnect(port int) {
	if connection := namespace.open[port]; connection != nil {
		connection.close()
		delete(namespace.open, port)
	}
}

// answering is the ports of nodes that answer; of all nodes if none does.
func (namespace *Namespace) answering() []int {
	var ports []int
	for _, port := range namespace.server.Ports {
		if !namespace.silent[port] {
			ports = append(ports, port)
		}
	}
	if ports == nil {
		return namespace.server.Ports
	}
	return ports
}

// finish warns of faults that never hit, logs the timeline if the test has failed, and drops the namespace. A server that cannot
// tell does not hide how the test ended.
func (namespace *Namespace) finish() {
	t := namespace.t
	reply, err := namespace.Call("TEST.FAULT", "LIST")
	faults, err := decode[[]FaultState](reply, err)
	for _, fault := range faults {
		if fault.Hits == 0 {
			t.Logf("redlatch: fault %d never hit: %s", fault.ID, fault.Rule)
		}
	}
	if err == nil && t.Failed() {
		var timeline string
		timeline, err = namespace.Timeline("text")
		if err == nil {
			t.Logf("redlatch timeline\n%s", timeline)
		}
	}
	if err != nil {
		t.Logf("redlatch: the server does not tell what happened: %v", err)
	}
	for _, connection := range namespace.open {
		connection.close()
	}
	if _, err := namespace.server.Drop(namespace.Name); err != nil {
		t.Logf("redlatch: the namespace is not dropped: %v", err)
	}
}

func (namespace *Namespace) url(port int) string {
	host := net.JoinHostPort(namespace.server.host, strconv.Itoa(port))
	return "redis://:" + url.QueryEscape(namespace.Password()) + "@" + host
}

func (filter Filter) words() []any {
	var words []any
	words = option(words, "SINCE", filter.Since)
	words = option(words, "KEY", filter.Key)
	words = option(words, "COMMAND", filter.Command)
	words = option(words, "CLIENT", filter.Client)
	return option(words, "COUNT", filter.Count)
}

// option appends a name and a value, unless it is zero.
func option[T comparable](words []any, name string, value T) []any {
	var zero T
	if value == zero {
		return words
	}
	return append(words, name, value)
}

// ask sends a command, and fails the test if it is refused.
func ask[T any](namespace *Namespace, words ...any) T {
	namespace.t.Helper()
	reply, err := namespace.Call(words...)
	decoded, err := decode[T](reply, err)
	if err != nil {
		namespace.t.Fatalf("redlatch: %v: %v", words, err)
	}
	return decoded
}

func millis(duration time.Duration) int64 {
	return duration.Milliseconds()
}
