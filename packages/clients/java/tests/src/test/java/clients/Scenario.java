package clients;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** One of {@code ../../conformance.json}, which REDLATCH_CONFORMANCE names. */
record Scenario(JsonObject json) {
    private static final List<Scenario> ALL = read();

    static List<Scenario> all() {
        return ALL;
    }

    static Stream<Scenario> on(String server) {
        return ALL.stream().filter(each -> each.servers().contains(server));
    }

    static Stream<Scenario> by(String connection, String server) {
        return on(server).filter(each -> each.strings("connections").contains(connection));
    }

    String name() {
        return json.get("name").getAsString();
    }

    List<String> servers() {
        return strings("servers");
    }

    List<JsonObject> steps() {
        return elements("steps").map(JsonElement::getAsJsonObject).toList();
    }

    Duration replyTimeout() {
        JsonObject client = json.getAsJsonObject("client");
        double seconds = client == null ? 5 : client.get("reply_timeout").getAsDouble();
        return Duration.ofMillis((long) (seconds * 1000));
    }

    private List<String> strings(String name) {
        return elements(name).map(JsonElement::getAsString).toList();
    }

    private Stream<JsonElement> elements(String name) {
        return json.has(name) ? StreamSupport.stream(json.getAsJsonArray(name).spliterator(), false) : Stream.of();
    }

    private static List<Scenario> read() {
        String path = System.getenv().getOrDefault("REDLATCH_CONFORMANCE", "../../conformance.json");
        try {
            JsonObject file = JsonParser.parseString(Files.readString(Path.of(path))).getAsJsonObject();
            return StreamSupport.stream(file.getAsJsonArray("scenarios").spliterator(), false)
                    .map(each -> new Scenario(each.getAsJsonObject()))
                    .toList();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
