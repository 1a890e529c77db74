package dev.redlatch.junit;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** The nodes of a namespace, numbered from 1. {@link RedlatchTest#nodes} says how many there are. */
public final class Nodes {
    private final Redlatch redlatch;

    Nodes(Redlatch redlatch) {
        this.redlatch = redlatch;
    }

    /** All nodes: node, port, state, skew, partitions, clients, keys of each. */
    public List<Map<String, Object>> list() {
        return Replies.maps(redlatch.call("TEST.NODE", "LIST"));
    }

    /** Its connections are reset, new ones too, until {@link #start}. Its keys are gone. */
    public void crash(int node) {
        silence("CRASH", node, "LOSE");
    }

    /** Like {@link #crash}, of a node that still has its keys when it starts. */
    public void crashKeep(int node) {
        silence("CRASH", node, "KEEP");
    }

    /** It answers again. */
    public void start(int node) {
        wake("START", node);
    }

    /** Its connections stay open; nothing is read or answered until {@link #resume}. */
    public void pause(int node) {
        silence("PAUSE", node);
    }

    /** Ends a pause. */
    public void resume(int node) {
        wake("RESUME", node);
    }

    /**
     * Its clock is this much ahead of the others, and its leases end so much earlier. One that is set back stands still until the
     * others have caught up.
     */
    public void skew(int node, Duration by) {
        change("SKEW", node, by.toMillis());
    }

    /** Clients whose name, library or address matches the pattern get no answers from it, until {@link #heal}. */
    public void partition(int node, String client) {
        silence("PARTITION", node, "CLIENT", client);
    }

    /** It and the other nodes of its cluster do not hear each other, until {@link #heal}. Clients reach it. */
    public void isolate(int node) {
        change("PARTITION", node, "NODES");
    }

    /** Whether what it writes reaches its replicas. If not, it is acknowledged all the same, and a crash loses it. */
    public void replication(int node, boolean on) {
        change("REPLICATION", node, on ? "ON" : "OFF");
    }

    /** Ends all partitions of the node. */
    public void heal(int node) {
        wake("HEAL", node);
    }

    /** A node cannot end its own answers: another one is asked, now and from now on, if there is another. */
    private void silence(String action, int node, Object... words) {
        redlatch.silence(node);
        change(action, node, words);
    }

    private void wake(String action, int node) {
        change(action, node);
        redlatch.wake(node);
    }

    private void change(String action, int node, Object... words) {
        List<Object> all = new ArrayList<>(List.of("TEST.NODE", action, node));
        all.addAll(Arrays.asList(words));
        redlatch.call(all.toArray());
    }
}
