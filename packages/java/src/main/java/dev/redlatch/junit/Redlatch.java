package dev.redlatch.junit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A namespace: a server of its own inside of a server, with keys, clients, channels, scripts, settings, clock, faults and history.
 *
 * <p>{@link RedlatchExtension} gives each test one as a parameter.
 */
public final class Redlatch implements AutoCloseable {
    private final RedlatchServer server;
    private final String name;
    private final Map<Integer, Connection> open = new HashMap<>();
    // The ports of nodes that this namespace has told not to answer. The other ones are asked first.
    private final Set<Integer> silent = new HashSet<>();

    Redlatch(RedlatchServer server, String name) {
        this.server = server;
        this.name = name;
    }

    /** Its name. */
    public String name() {
        return name;
    }

    /** What clients are given: {@code redis://:namespace%3Aorders@127.0.0.1:40000}. */
    public String url() {
        return urls().get(0);
    }

    /** The URLs of all nodes. */
    public List<String> urls() {
        List<String> urls = new ArrayList<>();
        String secret = URLEncoder.encode(password(), StandardCharsets.UTF_8);
        for (int port : server.ports()) {
            urls.add("redis://:" + secret + "@" + server.host() + ":" + port);
        }
        return urls;
    }

    /** The address, without the password: {@code redis://127.0.0.1:40000}. */
    public String address() {
        return addresses().get(0);
    }

    /** The addresses of all nodes. */
    public List<String> addresses() {
        List<String> addresses = new ArrayList<>();
        for (int port : server.ports()) {
            addresses.add("redis://" + server.host() + ":" + port);
        }
        return addresses;
    }

    /** The password that leads into the namespace. */
    public String password() {
        return "namespace:" + name;
    }

    /** The server that it is in. */
    public RedlatchServer server() {
        return server;
    }

    /** The clock of all nodes. */
    public Clock clock() {
        return new Clock(this);
    }

    /** The faults of all nodes. */
    public Faults faults() {
        return new Faults(this);
    }

    /** The slots of its cluster, if the server is one. */
    public Slots slots() {
        return new Slots(this);
    }

    /** The nodes, numbered from 1. */
    public Nodes nodes() {
        return new Nodes(this);
    }

    /**
     * What happened, oldest first: requests, replies, expiries, grants, faults, clients.
     *
     * <p>The fields of an event: id, kind, at, real, node, client, name, library, request, command, args, key, reply, token, holder,
     * lease, fault, text. {@link EventKind} has the kinds.
     */
    public List<Map<String, Object>> history(String... filter) {
        return Replies.maps(call(words("TEST.HISTORY", filter)));
    }

    /** How often each command was called. */
    public Map<String, Long> calls(String... filter) {
        Map<String, Long> calls = new LinkedHashMap<>();
        Replies.map(call(words("TEST.CALLS", filter))).forEach((command, count) -> calls.put(command, (Long) count));
        return calls;
    }

    /** What clients did wrong with locks: rule, key, text, events, lines. Empty if nothing. */
    public List<Map<String, Object>> check() {
        return Replies.maps(call("TEST.CHECK"));
    }

    /** Draws what happened, a lane for each client. */
    public String timeline() {
        return timeline("text");
    }

    /** The same as text or html. */
    public String timeline(String format) {
        return server.run("timeline", url(), "--format", format);
    }

    /**
     * Sends a command to the first node that can be reached. A reply is null, String, Long, Double, Boolean, List or Map.
     *
     * @throws CommandException the server refused it
     * @throws UncheckedIOException there was no reply
     */
    public synchronized Object call(Object... words) {
        IOException lost = null;
        for (int port : answering()) {
            try {
                if (!open.containsKey(port)) {
                    open.put(port, Connection.open(server.host(), port, password()));
                }
            } catch (IOException unreachable) {
                lost = unreachable;
                continue;
            }
            try {
                return open.get(port).call(words);
            } catch (IOException failure) {
                disconnect(port);
                throw new UncheckedIOException(failure);
            }
        }
        throw new UncheckedIOException(lost);
    }

    /** Ends the namespace and disconnects its clients. */
    @Override
    public synchronized void close() {
        open.values().forEach(Connection::close);
        open.clear();
        server.drop(name);
    }

    /** Asks other nodes than this one from now on, if there are others. */
    synchronized void silence(int node) {
        if (0 < node && node <= server.ports().size()) {
            int port = server.ports().get(node - 1);
            silent.add(port);
            disconnect(port);
        }
    }

    /** Asks this node again. */
    synchronized void wake(int node) {
        silent.remove(server.ports().get(node - 1));
    }

    private void disconnect(int port) {
        Connection connection = open.remove(port);
        if (connection != null) {
            connection.close();
        }
    }

    private List<Integer> answering() {
        List<Integer> ports = new ArrayList<>(server.ports());
        ports.removeAll(silent);
        return ports.isEmpty() ? server.ports() : ports;
    }

    private static Object[] words(String command, String... filter) {
        List<Object> words = new ArrayList<>(List.of(command));
        words.addAll(List.of(filter));
        return words.toArray();
    }
}
