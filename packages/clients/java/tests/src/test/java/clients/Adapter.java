package clients;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.redlatch.client.Deadlock;
import dev.redlatch.client.Held;
import dev.redlatch.client.Holder;
import dev.redlatch.client.Lock;
import dev.redlatch.client.LockHeld;
import dev.redlatch.client.LockLost;
import dev.redlatch.client.Locks;
import dev.redlatch.client.Mode;
import dev.redlatch.client.NotSupported;
import dev.redlatch.client.OnUnavailable;
import dev.redlatch.client.Refused;
import dev.redlatch.client.Unreachable;
import io.lettuce.core.RedisClient;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import redis.clients.jedis.JedisPooled;

/** The client for Java, driven by {@code conformance/run.py}: what it is asked and answers is in {@code packages/clients/README.md}. */
final class Adapter {
    private static final Gson JSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    /** The words of {@code take} that are no options. */
    private static final Set<String> NO_OPTIONS = Set.of("id", "do", "hold", "key", "keys", "any_of", "modes", "delay");

    private final Map<String, Held> holds = new ConcurrentHashMap<>();
    private Library.Client client;
    private Locks locks;

    private Adapter() {}

    public static void main(String[] none) throws IOException {
        Adapter adapter = new Adapter();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject asked = JsonParser.parseString(line).getAsJsonObject();
            Thread thread = new Thread(() -> adapter.answer(asked));
            thread.setDaemon(true);
            thread.start();
        }
        // Connections that the client still has do not keep an adapter that nobody asks.
        Runtime.getRuntime().halt(0);
    }

    private void answer(JsonObject asked) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", asked.get("id").getAsLong());
        try {
            answer.put("is", does(asked));
        } catch (Exception thrown) {
            Exception failure = thrown instanceof InvocationTargetException ? (Exception) thrown.getCause() : thrown;
            Map<String, Object> fails = new HashMap<>();
            fails.put("kind", kind(failure));
            fails.put("says", kind(failure).equals("adapter") ? failure.toString() : failure.getMessage());
            fails.put("holder", failure instanceof LockHeld held ? fields(held.holder()) : null);
            answer.put("fails", fails);
        }
        String line = JSON.toJson(answer);
        synchronized (this) {
            System.out.println(line);
            System.out.flush();
        }
    }

    /** The first that fits counts: a deadlock is a refusal. */
    private static String kind(Exception failure) {
        if (failure instanceof Deadlock) {
            return "deadlock";
        } else if (failure instanceof LockHeld) {
            return "held";
        } else if (failure instanceof LockLost) {
            return "lost";
        } else if (failure instanceof NotSupported) {
            return "not-supported";
        } else if (failure instanceof Refused) {
            return "refused";
        } else if (failure instanceof Unreachable) {
            return "unreachable";
        }
        boolean isInvalid = failure instanceof IllegalArgumentException || failure instanceof IllegalStateException;
        return isInvalid ? "invalid" : "adapter";
    }

    private Object does(JsonObject asked) throws Exception {
        String verb = asked.get("do").getAsString();
        return switch (verb) {
            case "libraries" -> List.of(library(RedisClient.class), library(JedisPooled.class));
            case "open" -> open(asked);
            case "close" -> {
                holds.clear();
                client.close();
                yield null;
            }
            case "take" -> take(asked);
            case "release" -> held(asked).release();
            case "extend" -> extend(held(asked), asked);
            case "leave" -> {
                held(asked).leave(seconds(asked.get("rest")));
                yield null;
            }
            case "transfer" -> transfer(held(asked), asked);
            case "fenced" -> {
                held(asked).fenced(null);
                yield null;
            }
            case "check" -> check(held(asked));
            case "remaining" -> remaining(held(asked).remaining());
            case "lost" -> held(asked).lost().get().reason();
            case "locked_by" -> fields(locks.lockedBy(asked.get("key").getAsString()));
            default -> throw new UnsupportedOperationException("no such verb: " + verb);
        };
    }

    /** The library that a class is of. */
    private static Map<String, Object> library(Class<?> of) throws Exception {
        Path jar = Path.of(of.getProtectionDomain().getCodeSource().getLocation().toURI());
        String name = jar.getFileName().toString().replace(".jar", "").replaceFirst("(-core)?-(?=\\d)", " ");
        return Map.of("name", name, "protocols", List.of(2, 3), "connections", List.of("single", "cluster", "sentinel"));
    }

    private Object open(JsonObject asked) {
        String name = asked.get("library").getAsString().startsWith("jedis") ? "JEDIS_" : "LETTUCE_";
        Where.Kind kind = Where.Kind.valueOf(asked.get("connection").getAsString().toUpperCase(Locale.ROOT));
        String password = asked.has("password") ? asked.get("password").getAsString() : null;
        String master = asked.has("master") ? asked.get("master").getAsString() : null;
        Where where = new Where(kind, asked.get("host").getAsString(), asked.get("port").getAsInt(), null, password, master);
        Duration timeout = asked.has("reply_timeout") ? seconds(asked.get("reply_timeout")) : Duration.ofSeconds(5);
        client = Library.valueOf(name + asked.get("protocol").getAsInt()).client(where, timeout);
        locks = client.locks.budget(seconds(asked.get("budget")));
        if (asked.has("on_unavailable")) {
            locks.onUnavailable(OnUnavailable.valueOf(asked.get("on_unavailable").getAsString().toUpperCase(Locale.ROOT)));
        }
        return null;
    }

    private Object take(JsonObject asked) throws Exception {
        Lock lock = asked.has("keys") ? locks.all(texts(asked.getAsJsonArray("keys")))
                : asked.has("any_of") ? locks.anyOf(texts(asked.getAsJsonArray("any_of")))
                : locks.lock(asked.get("key").isJsonNull() ? null : asked.get("key").getAsString());
        if (asked.has("delay") && !asked.has("session")) {
            throw new IllegalArgumentException("a delay is that of a session");
        }
        for (String option : asked.keySet()) {
            lock = NO_OPTIONS.contains(option) ? lock : with(lock, option, asked);
        }
        if (asked.has("modes")) {
            for (Map.Entry<String, JsonElement> each : asked.getAsJsonObject("modes").entrySet()) {
                lock = lock.mode(each.getKey(), mode(each.getValue()));
            }
        }
        Held held = lock.acquire();
        holds.put(asked.get("hold").getAsString(), held);
        Map<String, Object> taken = new HashMap<>();
        taken.put("token", number(held.token()));
        taken.put("owner", held.owner());
        taken.put("open", held.isOpen());
        taken.put("key", asked.has("keys") ? null : held.key());
        return taken;
    }

    private static List<String> texts(JsonArray array) {
        return array.asList().stream().map(JsonElement::getAsString).toList();
    }

    private static Mode mode(JsonElement value) {
        if (value.isJsonArray()) {
            return Mode.permits(value.getAsJsonArray().get(0).getAsInt(), value.getAsJsonArray().get(1).getAsInt());
        } else if (value.getAsString().equals("shared")) {
            return Mode.shared();
        }
        throw new IllegalArgumentException("modes: no such mode");
    }

    private static Lock with(Lock lock, String option, JsonObject asked) throws ReflectiveOperationException {
        JsonElement value = asked.get(option);
        return switch (option) {
            case "wait" -> lock.waiting(seconds(value));
            case "permits" -> lock.permits(value.getAsJsonArray().get(0).getAsInt(), value.getAsJsonArray().get(1).getAsInt());
            case "priority" -> lock.priority(value.getAsInt());
            case "session" -> asked.has("delay") ? lock.session(seconds(asked.get("delay"))) : lock.session();
            case "meta" -> {
                Map<String, String> meta = new HashMap<>();
                value.getAsJsonObject().asMap().forEach((name, text) -> meta.put(name, text.getAsString()));
                yield lock.meta(meta);
            }
            case "renew" -> value.getAsBoolean() ? lock : lock.unrenewed();
            default -> {
                String name = Pattern.compile("_(.)").matcher(option).replaceAll(word -> word.group(1).toUpperCase(Locale.ROOT));
                if (value.getAsJsonPrimitive().isBoolean()) {
                    yield value.getAsBoolean() ? (Lock) Lock.class.getMethod(name).invoke(lock) : lock;
                }
                // The other numbers are times.
                Object given = value.getAsJsonPrimitive().isNumber() ? seconds(value) : value.getAsString();
                yield (Lock) Lock.class.getMethod(name, given.getClass()).invoke(lock, given);
            }
        };
    }

    private static Object extend(Held held, JsonObject asked) {
        if (asked.has("lease")) {
            held.extend(seconds(asked.get("lease")));
        } else {
            held.extend();
        }
        return null;
    }

    private static Long transfer(Held held, JsonObject asked) {
        String next = asked.get("to").getAsString();
        return number(asked.has("lease") ? held.transferTo(next, seconds(asked.get("lease"))) : held.transferTo(next));
    }

    private static Object check(Held held) {
        held.throwIfLost();
        if (held.isLost() || held.lost().isDone()) {
            throw new UnsupportedOperationException("it is told as lost, but the check says nothing");
        }
        return null;
    }

    private Held held(JsonObject asked) {
        String name = asked.get("hold").getAsString();
        return Optional.ofNullable(holds.get(name)).orElseThrow(() -> new UnsupportedOperationException("no such hold: " + name));
    }

    private static Map<String, Object> fields(Optional<Holder> found) {
        if (found.isEmpty()) {
            return null;
        }
        Holder holder = found.get();
        Map<String, Object> fields = new HashMap<>();
        fields.put("key", holder.key());
        fields.put("owner", holder.owner().orElse(null));
        fields.put("token", number(holder.token()));
        fields.put("kind", holder.kind());
        fields.put("holders", holder.holders());
        fields.put("permits", holder.permits());
        fields.put("waiters", number(holder.waiters()));
        fields.put("meta", holder.meta());
        return fields;
    }

    private static Long number(OptionalLong value) {
        return value.isPresent() ? value.getAsLong() : null;
    }

    /** What is left, in seconds; null without a limit. */
    private static Double remaining(Duration left) {
        return left.compareTo(Duration.ofDays(100 * 365)) > 0 ? null : left.toNanos() / 1e9;
    }

    private static Duration seconds(JsonElement value) {
        return Duration.ofNanos((long) (value.getAsDouble() * 1e9));
    }
}
