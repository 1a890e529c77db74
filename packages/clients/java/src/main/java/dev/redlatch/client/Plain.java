package dev.redlatch.client;

import java.math.BigInteger;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.function.Function;

/** One key of a server without LOCK commands, and the owner's requests for it. */
final class Plain {
    private static final Script RELEASE =
            new Script("if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\nreturn redis.call('del', KEYS[1])\n");
    private static final Script EXTEND = new Script(
            "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end\nreturn redis.call('pexpire', KEYS[1], ARGV[2])\n");

    private final Function<Ask, Object> send;
    private final byte[] key;
    private final byte[] owner;

    Plain(Function<Ask, Object> send, byte[] key, byte[] owner) {
        this.send = send;
        this.key = key;
        this.owner = owner;
    }

    /** False if the owner does not hold the key. */
    boolean release() {
        return run(RELEASE);
    }

    /** False if the owner does not hold the key. */
    boolean extend(long leaseMillis) {
        try {
            return run(EXTEND, Texts.bytes(leaseMillis));
        } catch (Failure failure) {
            if (failure.getMessage().contains("WRONGTYPE")) {
                return false;
            }
            throw failure;
        }
    }

    /** Who holds the key; null if there is no such key. */
    Holder holder() {
        Holder holder = new Holder(Texts.text(key));
        try {
            byte[] value = (byte[]) send.apply(new Ask(Ask.Command.GET, key).with(key));
            if (value == null) {
                return null;
            }
            holder.owner = Texts.text(value);
            Long left = (Long) send.apply(new Ask(Ask.Command.PTTL, key).with(key));
            holder.leftMillis = left >= 0 ? left : null;
        } catch (Failure failure) {
            if (!failure.code().equals("WRONGTYPE")) {
                throw failure;
            }
            holder.kind = "none";
        }
        return holder;
    }

    private boolean run(Script script, byte[]... words) {
        try {
            return send.apply(request(Ask.Command.EVALSHA, script.digest, words)).equals(1L);
        } catch (Failure failure) {
            if (!failure.code().equals("NOSCRIPT")) {
                throw failure;
            }
            return send.apply(request(Ask.Command.EVAL, script.text, words)).equals(1L);
        }
    }

    private Ask request(Ask.Command command, byte[] script, byte[]... words) {
        Ask ask = new Ask(command, key).with(script).with(1).with(key).with(owner);
        for (byte[] word : words) {
            ask.with(word);
        }
        return ask;
    }

    private static final class Script {
        final byte[] text;
        final byte[] digest;

        Script(String source) {
            text = Texts.bytes(source);
            try {
                byte[] sha1 = MessageDigest.getInstance("SHA-1").digest(text);
                digest = Texts.bytes(String.format("%040x", new BigInteger(1, sha1)));
            } catch (NoSuchAlgorithmException never) {
                throw new AssertionError(never);
            }
        }
    }
}
