package dev.redlatch.junit;

/** A fault of a namespace. */
public final class Fault {
    private final Faults faults;
    private final long id;

    Fault(Faults faults, long id) {
        this.faults = faults;
        this.id = id;
    }

    /** Its number. */
    public long id() {
        return id;
    }

    /** How often it acted. */
    public long hits() {
        return state("hits");
    }

    /** How many requests matched its conditions. */
    public long met() {
        return state("met");
    }

    /** Removes it. False if it is gone already. */
    public boolean remove() {
        return faults.remove(id);
    }

    private long state(String field) {
        return faults.list().stream()
                .filter(fault -> fault.get("id").equals(id))
                .map(fault -> (Long) fault.get(field))
                .findFirst()
                .orElseThrow(() -> new IllegalStateException("fault " + id + " has been removed"));
    }
}
