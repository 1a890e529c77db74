package dev.redlatch.junit;

/** The slots of a cluster, in a namespace. */
public final class Slots {
    private final Redlatch redlatch;

    Slots(Redlatch redlatch) {
        this.redlatch = redlatch;
    }

    /** Moves a slot to a node. Returns how many keys have moved. */
    public long move(int slot, int node) {
        return (Long) redlatch.call("TEST.SLOT", "MOVE", slot, "TO", node);
    }

    /** Moves so many keys of a slot to a node, and the slot stays half-way. Returns how many keys have moved. */
    public long move(int slot, int node, int keys) {
        return (Long) redlatch.call("TEST.SLOT", "MOVE", slot, "TO", node, "STEPS", keys);
    }

    /** The node tells of the slots as they are now, whatever changes, until {@link #thaw}. */
    public void freeze(int node) {
        redlatch.call("TEST.SLOT", "FREEZE", node);
    }

    /** Ends {@link #freeze}. */
    public void thaw(int node) {
        redlatch.call("TEST.SLOT", "THAW", node);
    }
}
