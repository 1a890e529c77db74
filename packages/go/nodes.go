package redlatchtest

import "time"

// NodeSet is the nodes of a namespace, numbered from 1. [Nodes] says how many a server has.
type NodeSet struct {
	namespace *Namespace
}

// NodeState is a node as the server lists it. Skew is in milliseconds.
type NodeState struct {
	Node int
	Port int
	// State is "up", "paused" or "crashed".
	State      string
	Skew       int64
	Partitions []string
	Clients    int
	Keys       int
}

// List is all nodes.
func (nodes *NodeSet) List() []NodeState {
	nodes.namespace.t.Helper()
	return ask[[]NodeState](nodes.namespace, "TEST.NODE", "LIST")
}

// Crash resets its connections, and new ones too, until [NodeSet.Start]. Its keys are gone.
func (nodes *NodeSet) Crash(node int) {
	nodes.namespace.t.Helper()
	nodes.silence("CRASH", node, "LOSE")
}

// CrashKeep is like [NodeSet.Crash], of a node that still has its keys when it starts.
func (nodes *NodeSet) CrashKeep(node int) {
	nodes.namespace.t.Helper()
	nodes.silence("CRASH", node, "KEEP")
}

// Start lets it answer again.
func (nodes *NodeSet) Start(node int) {
	nodes.namespace.t.Helper()
	nodes.wake("START", node)
}

// Pause leaves its connections open; nothing is read or answered until [NodeSet.Resume].
func (nodes *NodeSet) Pause(node int) {
	nodes.namespace.t.Helper()
	nodes.silence("PAUSE", node)
}

// Resume ends a pause.
func (nodes *NodeSet) Resume(node int) {
	nodes.namespace.t.Helper()
	nodes.wake("RESUME", node)
}

// Skew sets its clock so much ahead of the others, and its leases end so much earlier. One that is set back stands still until
// the others have caught up.
func (nodes *NodeSet) Skew(node int, by time.Duration) {
	nodes.namespace.t.Helper()
	ask[string](nodes.namespace, "TEST.NODE", "SKEW", node, millis(by))
}

// Partition: clients whose name, library or address matches the pattern get no answers from it, until [NodeSet.Heal].
func (nodes *NodeSet) Partition(node int, client string) {
	nodes.namespace.t.Helper()
	nodes.silence("PARTITION", node, "CLIENT", client)
}

// Isolate: it and the other nodes of its cluster do not hear each other, until [NodeSet.Heal]. Clients reach it.
func (nodes *NodeSet) Isolate(node int) {
	nodes.namespace.t.Helper()
	ask[string](nodes.namespace, "TEST.NODE", "PARTITION", node, "NODES")
}

// Replication says whether what it writes reaches its replicas. If not, it is acknowledged all the same, and a crash loses it.
func (nodes *NodeSet) Replication(node int, on bool) {
	nodes.namespace.t.Helper()
	word := "OFF"
	if on {
		word = "ON"
	}
	ask[string](nodes.namespace, "TEST.NODE", "REPLICATION", node, word)
}

// Heal ends all partitions of the node.
func (nodes *NodeSet) Heal(node int) {
	nodes.namespace.t.Helper()
	nodes.wake("HEAL", node)
}

// silence: a node cannot end its own answers. Another one is asked, now and from now on, if there is another.
func (nodes *NodeSet) silence(action string, node int, words ...any) {
	nodes.namespace.t.Helper()
	nodes.namespace.silence(node)
	ask[string](nodes.namespace, append([]any{"TEST.NODE", action, node}, words...)...)
}

func (nodes *NodeSet) wake(action string, node int) {
	nodes.namespace.t.Helper()
	ask[string](nodes.namespace, "TEST.NODE", action, node)
	delete(nodes.namespace.silent, nodes.namespace.server.Ports[node-1])
}
