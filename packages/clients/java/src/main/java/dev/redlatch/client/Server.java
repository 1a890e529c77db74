package dev.redlatch.client;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** What a client knows of its server, and which locks it holds there. */
final class Server {
    private static final int CHANNEL_BYTES = "__lock__:".length();

    final Set<Held> holds = ConcurrentHashMap.newKeySet();
    /** It has no LOCK commands. */
    volatile boolean isPlain;

    /** A message of the channel {@code __lock__:key}: {@code lost <token> <reason> [text]}. */
    void told(byte[] channel, byte[] message) {
        byte[] key = Arrays.copyOfRange(channel, CHANNEL_BYTES, channel.length);
        String[] parts = new String(message, StandardCharsets.UTF_8).split(" ", 4);
        if (parts.length < 3 || !parts[0].equals("lost")) {
            return;
        }
        String text = parts.length > 3 ? Texts.shown(parts[3]) : null;
        for (Held held : holds) {
            if (held.isOf(key) && parts[1].equals(held.tokenText())) {
                held.lose(parts[2], text);
            }
        }
    }

    /** How often this client holds a reentrant lock. */
    long timesHeld(Terms terms) {
        return holds.stream().filter(held -> held.isOf(terms.key()) && Arrays.equals(held.terms.owner, terms.owner)).count();
    }
}
