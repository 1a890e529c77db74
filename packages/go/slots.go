package redlatchtest

// SlotSet is the slots of a cluster, in a namespace.
type SlotSet struct {
	namespace *Namespace
}

// Move moves a slot to a node. It returns how many keys have moved.
func (slots *SlotSet) Move(slot, node int) int {
	slots.namespace.t.Helper()
	return ask[int](slots.namespace, "TEST.SLOT", "MOVE", slot, "TO", node)
}

// MoveSteps moves so many keys of a slot to a node, and the slot stays half-way. It returns how many keys have moved.
func (slots *SlotSet) MoveSteps(slot, node, keys int) int {
	slots.namespace.t.Helper()
	return ask[int](slots.namespace, "TEST.SLOT", "MOVE", slot, "TO", node, "STEPS", keys)
}

// Freeze has a node tell of the slots as they are now, whatever changes, until [SlotSet.Thaw].
func (slots *SlotSet) Freeze(node int) {
	slots.namespace.t.Helper()
	ask[string](slots.namespace, "TEST.SLOT", "FREEZE", node)
}

// Thaw ends [SlotSet.Freeze].
func (slots *SlotSet) Thaw(node int) {
	slots.namespace.t.Helper()
	ask[string](slots.namespace, "TEST.SLOT", "THAW", node)
}
