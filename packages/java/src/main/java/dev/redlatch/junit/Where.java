package dev.redlatch.junit;

import java.util.LinkedHashMap;
import java.util.Map;

/** Which requests a fault meets: those that match all of these conditions. Keys and clients are patterns. */
public final class Where {
    final Map<String, Object> conditions = new LinkedHashMap<>();

    /** The name of a command. */
    public Where command(String name) {
        return with("COMMAND", name);
    }

    /** A pattern of keys. */
    public Where key(String pattern) {
        return with("KEY", pattern);
    }

    /** A SHA-1, or what a known script is for: {@code acquire}, {@code extend}, {@code release}. */
    public Where script(String shaOrPurpose) {
        return with("SCRIPT", shaOrPurpose);
    }

    /** A pattern of names, libraries or addresses. */
    public Where client(String pattern) {
        return with("CLIENT", pattern);
    }

    /** The number of a node. */
    public Where node(int number) {
        return with("NODE", number);
    }

    /** Of the matching requests this one only, counted from 1. */
    public Where nth(int number) {
        return with("NTH", number);
    }

    /** Of the matching requests every so many. */
    public Where every(int count) {
        return with("EVERY", count);
    }

    /** A share of the matching requests, which the seed repeats. */
    public Where probability(double share, long seed) {
        return with("PROBABILITY", share).with("SEED", seed);
    }

    /** At most so often. */
    public Where times(int count) {
        return with("TIMES", count);
    }

    private Where with(String name, Object value) {
        conditions.put(name, value);
        return this;
    }
}
