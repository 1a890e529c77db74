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
        return ofClient("reply_timeout", Duration.ofSeconds(5));
    }

    Duration budget() {
        return ofClient("budget", Library.BUDGET);
    }

    List<String> peers() {
        return strings("peers");
    }

    private Duration ofClient(String setting, Duration otherwise) {
        JsonObject client = json.getAsJsonObject("client");
        boolean isSet = client != null && client.has(setting);
        return isSet ? Duration.ofMillis((long) (client.get(setting).getAsDouble() * 1000)) : otherwise;
    }

    private List<String> strings(String name) {
        return elements(name).map(JsonElement::getAsString).toList();
    }

    private Stream<JsonElement> elements(String name) {
        return json.has(name) ? StreamSupport.stream(json.getAsJsonArray(name).spliterator(), false) : Stream.of();
    }

    private static Path path() {
        return Path.of(System.getenv().getOrDefault("REDLATCH_CONFORMANCE", "../../conformance.json"));
    }

    /** The path of another file in the folder of the scenarios. */
    static String beside(String name) {
        return path().resolveSibling(name).toString();
    }

    private static List<Scenario> read() {
        try {
            JsonObject file = JsonParser.parseString(Files.readString(path())).getAsJsonObject();
            return StreamSupport.stream(file.getAsJsonArray("scenarios").spliterator(), false)
                    .map(each -> new Scenario(each.getAsJsonObject()))
                    .toList();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
