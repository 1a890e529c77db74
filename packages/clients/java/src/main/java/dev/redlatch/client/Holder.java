package dev.redlatch.client;

import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/** Who holds a lock. What the server does not tell is empty. */
public final class Holder {
    private static final DateTimeFormatter SECONDS =
            DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss 'UTC'", Locale.ROOT).withZone(ZoneOffset.UTC);

    private final String key;
    String owner;
    Long token;
    Long sinceMillis;
    Long heldMillis;
    Long leftMillis;
    Map<String, String> meta = Map.of();
    String kind = "exclusive";
    int holders = 1;
    long permits = 1;
    Long waiters;
    String address;

    Holder(String key) {
        this.key = key;
    }

    /** The first holder in an answer of LOCK.WHO; null if there is none. */
    static Holder of(Object reply) {
        Map<String, Object> lock = Replies.fields(reply);
        List<?> holders = (List<?>) lock.get("holders");
        if (holders == null || holders.isEmpty()) {
            return null;
        }
        Map<String, Object> first = Replies.fields(holders.get(0));
        Holder holder = new Holder(Replies.text(lock.get("key")));
        holder.owner = Replies.text(first.get("owner"));
        holder.token = (Long) first.get("token");
        holder.sinceMillis = (Long) first.get("since");
        holder.heldMillis = (Long) first.get("held");
        holder.leftMillis = (Long) first.get("left");
        holder.meta = Replies.texts(first.get("meta"));
        holder.kind = Replies.text(lock.get("kind"));
        holder.holders = holders.size();
        holder.permits = first.get("permits") == null ? 1 : (Long) first.get("permits");
        holder.waiters = (Long) lock.get("waiters");
        holder.address = Replies.text(Replies.fields(first.get("client")).get("addr"));
        return holder;
    }

    /**
     * The key of the lock.
     *
     * @return the key
     */
    public String key() {
        return key;
    }

    /**
     * The name under which it was taken.
     *
     * @return the owner; empty for a value that names nobody
     */
    public Optional<String> owner() {
        return Optional.ofNullable(owner);
    }

    /**
     * The fencing token.
     *
     * @return the token
     */
    public OptionalLong token() {
        return optional(token);
    }

    /**
     * When it was taken.
     *
     * @return the moment, by the clock of the server
     */
    public Optional<Instant> since() {
        return Optional.ofNullable(sinceMillis).map(Instant::ofEpochMilli);
    }

    /**
     * For how long it is held.
     *
     * @return the time since it was taken
     */
    public Optional<Duration> held() {
        return Optional.ofNullable(heldMillis).map(Duration::ofMillis);
    }

    /**
     * What is left of its lease.
     *
     * @return the time; empty for a session
     */
    public Optional<Duration> left() {
        return Optional.ofNullable(leftMillis).map(Duration::ofMillis);
    }

    /**
     * What it says of itself.
     *
     * @return names and values
     */
    public Map<String, String> meta() {
        return meta;
    }

    /**
     * The kind of the lock.
     *
     * @return {@code exclusive}, {@code shared}, {@code permits}, {@code reentrant}; {@code none} for a key that is no lock
     */
    public String kind() {
        return kind;
    }

    /**
     * How many hold the lock together: this is the first of them.
     *
     * @return 1 at least
     */
    public int holders() {
        return holders;
    }

    /**
     * How many permits it has, or how often it holds a reentrant lock.
     *
     * @return 1 at least
     */
    public long permits() {
        return permits;
    }

    /**
     * How many wait for the lock.
     *
     * @return the length of the queue
     */
    public OptionalLong waiters() {
        return optional(waiters);
    }

    /**
     * The address of its connection.
     *
     * @return address and port
     */
    public Optional<String> address() {
        return Optional.ofNullable(address);
    }

    /** A line for each thing that is known. */
    @Override
    public String toString() {
        Map<String, String> lines = new LinkedHashMap<>();
        String others = holders > 1 ? " and " + (holders - 1) + " others" : "";
        lines.put("key", Texts.shown(key));
        lines.put("holder", (owner == null ? "unknown" : Texts.shown(owner)) + others);
        lines.put("at", address);
        meta.forEach((name, value) -> lines.put(Texts.shown(name), Texts.shown(value)));
        String begun = since().map(SECONDS::format).orElse(null);
        lines.put("since", begun == null ? null : begun + ", for " + seconds(heldMillis == null ? 0 : heldMillis) + " s");
        lines.put("lease", leftMillis == null ? null : seconds(leftMillis) + " s left");
        lines.put("token", token == null ? null : token.toString());
        lines.put("queue", waiters == null ? null : waiters + " waiting");
        int width = lines.keySet().stream().mapToInt(String::length).max().orElse(0) + 1;
        StringBuilder text = new StringBuilder();
        lines.forEach((name, value) -> {
            if (value != null) {
                text.append(text.length() == 0 ? "" : "\n").append(String.format("  %-" + width + "s %s", name + ":", value));
            }
        });
        return text.toString();
    }

    private static String seconds(long millis) {
        return String.format(Locale.ROOT, "%.1f", millis / 1000.0);
    }

    private static OptionalLong optional(Long value) {
        return value == null ? OptionalLong.empty() : OptionalLong.of(value);
    }
}
