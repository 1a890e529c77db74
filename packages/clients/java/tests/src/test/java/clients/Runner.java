package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.redlatch.client.Deadlock;
import dev.redlatch.client.Held;
import dev.redlatch.client.Holder;
import dev.redlatch.client.Lock;
import dev.redlatch.client.LockHeld;
import dev.redlatch.client.LockLost;
import dev.redlatch.client.Locks;
import dev.redlatch.client.NotSupported;
import dev.redlatch.client.Refused;
import dev.redlatch.client.Unreachable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** A run of one scenario. What each step means is in {@code ../../README.md}. */
final class Runner {
    private static final long PATIENCE_SECONDS = 30;
    private static final Map<String, List<Class<? extends Exception>>> FAILURES = Map.of(
            "deadlock", List.of(Deadlock.class),
            "held", List.of(LockHeld.class),
            "held-or-refused", List.of(LockHeld.class, Refused.class),
            "invalid", List.of(IllegalArgumentException.class, IllegalStateException.class),
            "lost", List.of(LockLost.class),
            "not-supported", List.of(NotSupported.class),
            "refused", List.of(Refused.class),
            "unreachable", List.of(Unreachable.class));
    private static final Set<String> NO_OPTIONS =
            Set.of("take", "begin", "key", "keys", "fails", "holder", "says", "after", "within");

    private final Locks locks;
    private final Beside server;
    private final Runnable restart;
    private final Map<String, Held> holds = new HashMap<>();
    private final Map<String, CompletableFuture<Held>> begun = new HashMap<>();

    Runner(Locks locks, Beside server, Runnable restart) {
        this.locks = locks;
        this.server = server;
        this.restart = restart;
    }

    void run(List<JsonObject> steps) {
        int number = 0;
        for (JsonObject step : steps) {
            number++;
            try {
                long begun = System.nanoTime();
                run(step);
                inTime((System.nanoTime() - begun) / 1e9, step);
            } catch (Exception | AssertionError failure) {
                throw new AssertionError("step " + number + ", " + step + ": " + failure, failure);
            }
        }
    }

    private static void inTime(double took, JsonObject step) {
        assertTrue(!step.has("after") || took >= step.get("after").getAsDouble(), () -> "it has taken " + took + " s");
        assertTrue(!step.has("within") || took <= step.get("within").getAsDouble(), () -> "it has taken " + took + " s");
    }

    private void run(JsonObject step) throws Exception {
        String verb = step.keySet().iterator().next();
        JsonElement what = step.get(verb);
        switch (verb) {
            case "take" -> take(what.getAsString(), step);
            case "begin" -> begin(what.getAsString(), step);
            case "granted" -> granted(what.getAsString());
            case "release" -> attempt(step, () -> release(held(what), step));
            case "extend" -> attempt(step, () -> extend(held(what), step));
            case "leave" -> attempt(step, () -> held(what).leave(seconds(step.get("rest"))));
            case "holds" -> holds(held(what));
            case "lost" -> lost(held(what), step);
            // It is subscribed, and has renewed what it held before.
            case "listens" -> until(words("LOCK.WHO", held(what).key()), "holders.0.renewals", found -> number(found) >= 1);
            case "remaining" -> remaining(held(what).remaining().toNanos() / 1e9, step);
            case "token" -> assertEquals(optional(step.get("is")), held(what).token());
            case "rise" -> rise(tokens(what));
            case "next_token" -> assertEquals(tokens(what).get(0) + 1, tokens(what).get(1));
            case "locked_by" -> compare(locks.lockedBy(what.getAsString()), step.get("is"));
            case "server" -> server(what.getAsJsonArray(), step);
            case "until" -> until(words(what.getAsJsonArray()), field(step), found -> fits(found, step));
            case "restart" -> restart.run();
            default -> fail("the verb " + verb + " is not known");
        }
    }

    private void take(String name, JsonObject step) throws InterruptedException {
        List<Class<? extends Exception>> wanted = failures(step);
        try {
            holds.put(name, lock(step).acquire());
        } catch (RuntimeException failure) {
            expect(wanted, failure);
            for (String text : strings(step.get("says"))) {
                assertTrue(failure.getMessage().contains(filled(text)), () -> text + " is not in: " + failure.getMessage());
            }
            if (step.has("holder")) {
                compare(((LockHeld) failure).holder(), step.get("holder"));
            }
            return;
        }
        assertTrue(wanted.isEmpty(), "it was granted");
    }

    private void begin(String name, JsonObject step) {
        Lock lock = lock(step);
        CompletableFuture<Held> coming = new CompletableFuture<>();
        Thread waiter = new Thread(() -> {
            try {
                coming.complete(lock.acquire());
            } catch (InterruptedException | RuntimeException failure) {
                coming.completeExceptionally(failure);
            }
        });
        waiter.setDaemon(true);
        waiter.start();
        begun.put(name, coming);
    }

    private void granted(String name) throws Exception {
        holds.put(name, begun.get(name).get(PATIENCE_SECONDS, TimeUnit.SECONDS));
    }

    private static Lock permits(Lock lock, JsonArray numbers) {
        return lock.permits(numbers.get(0).getAsInt(), numbers.get(1).getAsInt());
    }

    private static void attempt(JsonObject step, Runnable work) {
        List<Class<? extends Exception>> wanted = failures(step);
        try {
            work.run();
        } catch (RuntimeException failure) {
            expect(wanted, failure);
            return;
        }
        assertTrue(wanted.isEmpty(), "it has not failed");
    }

    private static void release(Held held, JsonObject step) {
        boolean wasHeld = held.release();
        assertEquals(step.get("gives").getAsBoolean(), wasHeld);
    }

    private static void extend(Held held, JsonObject step) {
        if (step.has("lease")) {
            held.extend(seconds(step.get("lease")));
        } else {
            held.extend();
        }
    }

    private static void expect(List<Class<? extends Exception>> wanted, RuntimeException failure) {
        if (wanted.stream().noneMatch(each -> each.isInstance(failure))) {
            throw failure;
        }
    }

    private static void holds(Held held) {
        held.throwIfLost();
        assertFalse(held.isLost());
        assertFalse(held.lost().isDone());
        assertTrue(held.remaining().compareTo(Duration.ZERO) > 0);
    }

    private static void lost(Held held, JsonObject step) throws Exception {
        LockLost loss = held.lost().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertTrue(strings(step.get("reason")).contains(loss.reason()), loss.reason());
        assertTrue(held.isLost());
        assertEquals(Duration.ZERO, held.remaining());
        String said = assertThrows(LockLost.class, held::throwIfLost).getMessage();
        for (String text : strings(step.get("says"))) {
            assertTrue(said.contains(text), said);
        }
    }

    private static void remaining(double found, JsonObject step) {
        assertTrue(!step.has("at_least") || found >= step.get("at_least").getAsDouble(), () -> "it is " + found);
        assertTrue(!step.has("at_most") || found <= step.get("at_most").getAsDouble(), () -> "it is " + found);
    }

    private static void rise(List<Long> tokens) {
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
    }

    private void server(JsonArray words, JsonObject step) {
        Object answer = server.ask(words(words));
        if (step.has("answers")) {
            assertEquals(step.get("answers").isJsonNull() ? null : filled(step.get("answers").getAsString()), text(answer));
        }
    }

    private void until(Object[] words, String field, Predicate<Object> fits) {
        long begun = System.nanoTime();
        while (true) {
            Object found = null;
            try {
                found = server.ask(words);
            } catch (JedisConnectionException killed) {
                // It is started again.
            }
            for (String name : field.isEmpty() ? new String[0] : field.split("\\.")) {
                found = part(found, name);
            }
            if (fits.test(found)) {
                return;
            }
            assertTrue(System.nanoTime() - begun < PATIENCE_SECONDS * 1_000_000_000L, "it is " + found);
            Servers.pause();
        }
    }

    private static Object part(Object found, String name) {
        if (found instanceof List<?> list) {
            int index = Integer.parseInt(name);
            return index < list.size() ? list.get(index) : null;
        }
        return found instanceof Map<?, ?> map ? map.get(name) : null;
    }

    private static boolean fits(Object found, JsonObject step) {
        if (step.has("is")) {
            return step.get("is").isJsonNull() ? found == null : step.get("is").getAsString().equals(text(found));
        }
        return found != null
                && (!step.has("at_least") || number(found) >= step.get("at_least").getAsLong())
                && (!step.has("at_most") || number(found) <= step.get("at_most").getAsLong());
    }

    private Lock lock(JsonObject step) {
        Lock lock = step.has("keys") ? locks.all(strings(step.get("keys"))) : locks.lock(step.get("key").getAsString());
        for (String option : step.keySet()) {
            if (!NO_OPTIONS.contains(option)) {
                lock = with(lock, option, step.get(option), step);
            }
        }
        return lock;
    }

    private Lock with(Lock lock, String option, JsonElement value, JsonObject step) {
        return switch (option) {
            case "lease" -> lock.lease(seconds(value));
            case "wait" -> lock.waiting(seconds(value));
            case "shared" -> lock.shared();
            case "permits" -> permits(lock, value.getAsJsonArray());
            case "reentrant" -> lock.reentrant();
            case "session" -> step.has("delay") ? lock.session(seconds(step.get("delay"))) : lock.session();
            case "delay" -> lock;
            case "meta" -> lock.meta(meta(value.getAsJsonObject()));
            case "owner" -> lock.owner(filledOrRepeated(value));
            case "renew" -> value.getAsBoolean() ? lock : lock.unrenewed();
            default -> fail("the option " + option + " is not known");
        };
    }

    private Map<String, String> meta(JsonObject value) {
        Map<String, String> meta = new HashMap<>();
        value.keySet().forEach(name -> meta.put(name, filledOrRepeated(value.get(name))));
        return meta;
    }

    /** A text, or {@code {"repeat": ...}} for a long one. */
    private String filledOrRepeated(JsonElement value) {
        if (value.isJsonObject()) {
            JsonObject repeated = value.getAsJsonObject();
            return repeated.get("repeat").getAsString().repeat(repeated.get("times").getAsInt());
        }
        return filled(value.getAsString());
    }

    private Held held(JsonElement name) {
        return holds.get(name.getAsString());
    }

    private List<Long> tokens(JsonElement names) {
        return strings(names).stream().map(name -> holds.get(name).token().getAsLong()).toList();
    }

    private void compare(Optional<Holder> found, JsonElement wanted) {
        if (wanted.isJsonNull()) {
            assertEquals(Optional.empty(), found);
            return;
        }
        Holder holder = found.orElseThrow();
        for (String name : wanted.getAsJsonObject().keySet()) {
            JsonElement value = wanted.getAsJsonObject().get(name);
            Object seen = switch (name) {
                case "key" -> holder.key();
                case "owner" -> holder.owner().orElse(null);
                case "token" -> holder.token().getAsLong();
                case "waiters" -> holder.waiters().getAsLong();
                case "kind" -> holder.kind();
                case "holders" -> holder.holders();
                case "permits" -> holder.permits();
                case "meta" -> holder.meta();
                default -> fail("the field " + name + " is not known");
            };
            if (value.isJsonObject()) {
                assertEquals(meta(value.getAsJsonObject()), seen);
            } else {
                assertEquals(filled(value.getAsString()), text(seen));
            }
        }
    }

    /** {@code $a.token} stands for what the hold {@code a} has. */
    private String filled(String text) {
        String filled = text;
        for (Map.Entry<String, Held> each : holds.entrySet()) {
            OptionalLong token = each.getValue().token();
            filled = filled.replace("$" + each.getKey() + ".token", token.isPresent() ? "" + token.getAsLong() : "none");
            filled = filled.replace("$" + each.getKey() + ".owner", each.getValue().owner());
        }
        return filled;
    }

    private Object[] words(Object... words) {
        return Arrays.stream(words).map(each -> filled(each.toString())).toArray();
    }

    private Object[] words(JsonArray words) {
        return words(strings(words).toArray());
    }

    private static List<Class<? extends Exception>> failures(JsonObject step) {
        return step.has("fails") ? FAILURES.get(step.get("fails").getAsString()) : List.of();
    }

    private static String field(JsonObject step) {
        return step.has("field") ? step.get("field").getAsString() : "";
    }

    private static List<String> strings(JsonElement list) {
        List<String> strings = new ArrayList<>();
        if (list != null) {
            list.getAsJsonArray().forEach(each -> strings.add(each.getAsString()));
        }
        return strings;
    }

    private static Duration seconds(JsonElement value) {
        return Duration.ofNanos((long) (value.getAsDouble() * 1e9));
    }

    private static long number(Object found) {
        return found instanceof Long number ? number : 0;
    }

    private static OptionalLong optional(JsonElement value) {
        return value.isJsonNull() ? OptionalLong.empty() : OptionalLong.of(value.getAsLong());
    }

    private static String text(Object value) {
        return value == null ? null : value.toString();
    }
}
