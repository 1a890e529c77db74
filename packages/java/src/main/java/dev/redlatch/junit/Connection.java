package dev.redlatch.junit;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A connection that speaks RESP3, one command after the other. */
final class Connection implements AutoCloseable {
    /** A reply takes longer than this only if the node is paused or the server is gone. */
    private static final int REPLY_MS_MAX = 30_000;

    private final Socket socket;
    private final InputStream input;

    private Connection(String host, int port) throws IOException {
        socket = new Socket();
        socket.connect(new InetSocketAddress(host, port), REPLY_MS_MAX);
        socket.setSoTimeout(REPLY_MS_MAX);
        socket.setTcpNoDelay(true);
        input = new BufferedInputStream(socket.getInputStream());
    }

    /** Connects, and enters a namespace if there is a password for it. */
    static Connection open(String host, int port, String password) throws IOException {
        Connection connection = new Connection(host, port);
        try {
            if (password == null) {
                connection.call("HELLO", 3, "SETNAME", "redlatch-test");
            } else {
                connection.call("HELLO", 3, "AUTH", "default", password, "SETNAME", "redlatch-test");
            }
            return connection;
        } catch (IOException | RuntimeException failure) {
            connection.close();
            throw failure;
        }
    }

    /** The reply: null, String, Long, Double, Boolean, List or Map. */
    synchronized Object call(Object... words) throws IOException {
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        request.writeBytes(bytes("*" + words.length + "\r\n"));
        for (Object word : words) {
            byte[] text = bytes(word.toString());
            request.writeBytes(bytes("$" + text.length + "\r\n"));
            request.writeBytes(text);
            request.writeBytes(bytes("\r\n"));
        }
        socket.getOutputStream().write(request.toByteArray());
        Object reply = read();
        if (reply instanceof CommandException) {
            throw (CommandException) reply;
        }
        return reply;
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException ended) {
            // It is closed.
        }
    }

    /** Reads one reply. Push messages are skipped. */
    private Object read() throws IOException {
        String line = line();
        String text = line.substring(1);
        switch (line.charAt(0)) {
            case '+':
            case '(':
                return text;
            case '-':
                return new CommandException(text);
            case ':':
                return Long.valueOf(text);
            case ',':
                return Double.valueOf(text.replace("inf", "Infinity"));
            case '#':
                return text.equals("t");
            case '_':
                return null;
            default:
                int length = Integer.parseInt(text);
                return length < 0 ? null : readLong(line.charAt(0), length);
        }
    }

    /** Reads what follows the line of a reply with a length. */
    private Object readLong(char kind, int length) throws IOException {
        switch (kind) {
            case '$':
                return blob(length);
            case '=':
                return blob(length).substring(4);
            case '!':
                return new CommandException(blob(length));
            case '*':
            case '~':
                return list(length);
            case '%':
                Map<String, Object> map = new LinkedHashMap<>();
                for (int count = 0; count < length; count++) {
                    map.put(String.valueOf(read()), read());
                }
                return map;
            case '>':
                list(length);
                return read();
            default:
                throw new IOException("a reply begins with '" + kind + "'");
        }
    }

    private List<Object> list(int length) throws IOException {
        List<Object> values = new ArrayList<>();
        while (values.size() < length) {
            values.add(read());
        }
        return values;
    }

    private String blob(int length) throws IOException {
        byte[] text = input.readNBytes(length + 2);
        if (text.length < length + 2) {
            throw new EOFException("the connection is closed");
        }
        return new String(text, 0, length, StandardCharsets.UTF_8);
    }

    private String line() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        int last;
        while ((last = input.read()) != '\n') {
            if (last < 0) {
                throw new EOFException("the connection is closed");
            }
            if (last != '\r') {
                line.write(last);
            }
        }
        if (line.size() == 0) {
            throw new IOException("a reply is an empty line");
        }
        return line.toString(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
