package dev.redlatch.junit;

import java.io.OutputStream;
import java.nio.charset.StandardCharsets;

/** Keeps the end of what is printed. */
final class Tail extends OutputStream {
    private static final int BYTES_MAX = 8192;

    private final byte[] ring = new byte[BYTES_MAX];
    private long written;

    @Override
    public synchronized void write(int value) {
        ring[(int) (written++ % BYTES_MAX)] = (byte) value;
    }

    @Override
    public synchronized void write(byte[] bytes, int start, int length) {
        for (int index = Math.max(start, start + length - BYTES_MAX); index < start + length; index++) {
            write(bytes[index]);
        }
    }

    /** What is kept, and begins anew. */
    synchronized String take() {
        int length = (int) Math.min(written, BYTES_MAX);
        byte[] kept = new byte[length];
        for (int index = 0; index < length; index++) {
            kept[index] = ring[(int) ((written - length + index) % BYTES_MAX)];
        }
        written = 0;
        return new String(kept, StandardCharsets.UTF_8);
    }
}
