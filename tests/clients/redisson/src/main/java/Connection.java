import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A connection that sends any command, over RESP2: Redisson sends those that it knows. */
final class Connection implements AutoCloseable {
    private final Socket socket;
    private final InputStream input;

    Connection(String host, int port) throws IOException {
        socket = new Socket(host, port);
        socket.setSoTimeout(30_000);
        input = new BufferedInputStream(socket.getInputStream());
    }

    /** Sends one command and returns its reply: a Long, a String, a List or null. */
    synchronized Object ask(Object... words) throws IOException {
        StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
        for (Object word : words) {
            int length = word.toString().getBytes(StandardCharsets.UTF_8).length;
            request.append("$" + length + "\r\n" + word + "\r\n");
        }
        socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.UTF_8));
        return reply();
    }

    /** A map, which RESP2 sends as names and values in turn. */
    static Map<?, ?> map(Object flat) {
        List<?> words = (List<?>) flat;
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int at = 0; at < words.size(); at += 2) {
            map.put(words.get(at), words.get(at + 1));
        }
        return map;
    }

    private Object reply() throws IOException {
        String line = line();
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+':
                return rest;
            case '-':
                throw new IllegalStateException(rest);
            case ':':
                return Long.valueOf(rest);
            case '$':
                return rest.equals("-1") ? null : text(Integer.parseInt(rest));
            default:
                return rest.equals("-1") ? null : list(Integer.parseInt(rest));
        }
    }

    private List<Object> list(int length) throws IOException {
        List<Object> list = new ArrayList<>();
        while (list.size() < length) {
            list.add(reply());
        }
        return list;
    }

    private String text(int length) throws IOException {
        byte[] bytes = input.readNBytes(length);
        line();
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private String line() throws IOException {
        StringBuilder line = new StringBuilder();
        while (true) {
            int next = input.read();
            if (next < 0) {
                throw new EOFException();
            }
            if (next == '\n') {
                return line.toString();
            }
            if (next != '\r') {
                line.append((char) next);
            }
        }
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
