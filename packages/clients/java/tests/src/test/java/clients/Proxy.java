package clients;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.atomic.AtomicInteger;

/** A server behind a slow network: connections to it are slow to open, and answers may come byte by byte. */
final class Proxy implements AutoCloseable {
    private final ServerSocket listener;
    private final Where server;
    private final long openingMillis;
    private final AtomicInteger opening = new AtomicInteger();
    private volatile long millisPerByte;

    Proxy(Where server, long openingMillis) throws IOException {
        this.server = server;
        this.openingMillis = openingMillis;
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        inBackground(this::accept);
    }

    Where where() {
        return new Where(Where.Kind.SINGLE, "127.0.0.1", listener.getLocalPort(), server.user(), server.password(), null);
    }

    /** Connections that are not open yet. */
    int opening() {
        return opening.get();
    }

    /** Answers come so slowly from now on. */
    void trickle(long millisPerByte) {
        this.millisPerByte = millisPerByte;
    }

    @Override
    public void close() throws IOException {
        listener.close();
    }

    private void accept() throws IOException {
        while (true) {
            Socket client = listener.accept();
            inBackground(() -> serve(client));
        }
    }

    private void serve(Socket client) throws IOException, InterruptedException {
        opening.incrementAndGet();
        try {
            Thread.sleep(openingMillis);
        } finally {
            opening.decrementAndGet();
        }
        try (client; Socket behind = new Socket(server.host(), server.port())) {
            inBackground(() -> {
                client.getInputStream().transferTo(behind.getOutputStream());
                behind.shutdownOutput();
            });
            answer(behind.getInputStream(), client.getOutputStream());
        }
    }

    private void answer(InputStream from, OutputStream to) throws IOException, InterruptedException {
        for (int next = from.read(); next >= 0; next = from.read()) {
            Thread.sleep(millisPerByte);
            to.write(next);
        }
    }

    /** What ends with its connection. */
    private interface Work {
        void run() throws IOException, InterruptedException;
    }

    private static void inBackground(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException | UncheckedIOException | InterruptedException ended) {
                // Its connection has ended.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
