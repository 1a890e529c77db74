package dev.redlatch.client;

import static dev.redlatch.client.Ask.Command.EXTEND;
import static dev.redlatch.client.Ask.Command.RELEASE;
import static dev.redlatch.client.Ask.Command.SESSION;
import static dev.redlatch.client.Ask.Command.SET;
import static dev.redlatch.client.Ask.Command.TRANSFER;
import static dev.redlatch.client.Ask.Command.WHO;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/**
 * What a lock client decides: which request comes next, what a reply means, until when a lock is certainly held.
 *
 * <p>Knows of servers only what {@link Line} answers. A lease counts from the moment its request was sent, so a deadline here
 * lies before the one of the server whatever the network did.
 */
final class Steps {
    /** The pauses between the requests of a wait for a lock of a plain server. */
    private static final long POLL_MIN = Time.ofMillis(20);
    private static final long POLL_MAX = Time.ofMillis(500);
    private static final byte[] LOCKS = Texts.bytes("locks");
    private static final byte[] TOKEN = Texts.bytes("token");
    private static final byte[] WAITED = Texts.bytes("waited");
    private static final byte[] REFUSED = Texts.bytes("refused");
    private static final byte[] HOLDERS = Texts.bytes("holders");

    private final Line line;
    private final Server server;
    private final boolean isInterruptible;
    /** That of the one call which these are for. */
    private final Budget budget;
    /** When the last request that was answered was sent. */
    private long sent;

    private Steps(Line line, Server server, boolean isInterruptible, Budget budget) {
        this.line = line;
        this.server = server;
        this.isInterruptible = isInterruptible;
        this.budget = budget;
    }

    static Steps interruptible(Line line, Server server, Budget budget) {
        return new Steps(line, server, true, budget);
    }

    static Steps of(Line line, Server server, Budget budget) {
        return new Steps(line, server, false, budget);
    }

    /** Takes a lock, waiting as long as the terms say. A request whose answer is lost is sent again for the same owner. */
    Grant acquire(Terms terms) {
        while (true) {
            try {
                if (server.isPlain && terms.lacking() == null) {
                    return acquirePlainly(terms, terms.hasOwnOwner || budget.failures > 0);
                }
                // A reentrant request may have been carried out: another one would count twice.
                Grant repeated = terms.isReentrant() && budget.failures > 0 ? reentered(terms) : null;
                return repeated != null ? repeated : acquireNatively(terms);
            } catch (Failure failure) {
                budget.isAnswered |= failure.isReply();
                if (!failure.isUnknownCommand()) {
                    pause(budget.after(failure));
                    continue;
                }
                server.isPlain = true;
                if (terms.lacking() != null) {
                    throw new NotSupported(terms.lacking(), failure.getCause());
                }
            }
        }
    }

    private Grant acquireNatively(Terms terms) {
        byte[] session = null;
        if (terms.isSession) {
            ((Driver.Session) line).reconnect(budget.limit(0));
            session = (byte[]) ask(new Ask(SESSION, terms.key()).with("ID"));
        }
        while (true) {
            long wait = Math.min(Math.max(budget.until - Time.now(), 0), Generated.WAIT_MAX);
            Object answer = ask(terms.request(wait));
            if (answer instanceof Long) {
                // A request that does not wait is answered with the token alone.
                return new Grant((Long) answer, sent, session);
            }
            List<?> only = (List<?>) Replies.field(answer, LOCKS);
            Long token = (Long) (only == null ? Replies.field(answer, TOKEN) : only.get(1));
            if (token != null) {
                // The lease began when the wait had ended.
                long waited = Time.ofMillis(Math.max((Long) Replies.field(answer, WAITED) - 1, 0));
                byte[] key = only == null ? null : (byte[]) only.get(0);
                return new Grant(token, Math.min(sent + waited, Time.now()), session, key);
            }
            if (wait < Generated.WAIT_MAX) {
                Holder holder = holder(terms.keys, Replies.fields(Replies.field(answer, REFUSED)));
                throw new LockHeld(holder.key(), holder);
            }
        }
    }

    /** The grant of an earlier request, if it was carried out. */
    private Grant reentered(Terms terms) {
        if (permits(terms) <= server.timesHeld(terms)) {
            return null;
        }
        Ask again = new Ask(EXTEND, terms.key()).with(terms.key()).with(terms.owner);
        Object answer = ask(again.with("LEASE").with(Time.millis(terms.lease)));
        return answer == null ? null : new Grant((Long) Replies.field(answer, TOKEN), sent, null);
    }

    /** How often the owner holds the lock. */
    private long permits(Terms terms) {
        Object holders = Replies.field(ask(new Ask(WHO, terms.key()).with(terms.key())), HOLDERS);
        long permits = 0;
        for (Object each : holders == null ? List.of() : (List<?>) holders) {
            Map<String, Object> holder = Replies.fields(each);
            permits += Arrays.equals((byte[]) holder.get("owner"), terms.owner) ? (Long) holder.get("permits") : 0;
        }
        return permits;
    }

    private Grant acquirePlainly(Terms terms, boolean mayBeOurs) {
        Plain plain = new Plain(this::ask, terms.key(), terms.owner);
        long lease = Time.millis(terms.lease);
        boolean isUnsure = mayBeOurs;
        long pause = POLL_MIN;
        while (true) {
            Ask set = new Ask(SET, terms.key()).with(terms.key()).with(terms.owner);
            if (ask(set.with("NX").with("PX").with(lease)) != null) {
                return new Grant(null, sent, null);
            }
            if (isUnsure) {
                isUnsure = false;
                if (plain.extend(lease)) {
                    return new Grant(null, sent, null);
                }
            }
            long left = budget.until - Time.now();
            if (left <= 0) {
                Holder holder = plain.holder();
                throw new LockHeld(Texts.text(terms.key()), holder);
            }
            // A part of the pause is random, so that those who wait do not ask in step.
            pause(Math.min(left, ThreadLocalRandom.current().nextLong(pause / 2, pause)));
            pause = Math.min(pause * 2, POLL_MAX);
        }
    }

    /** Starts the lease anew. The hold is lost if the server does not know it. {@code lease}: nanoseconds; 0 as it is. */
    void extend(Held held, long lease) {
        Terms terms = held.terms;
        long length = lease == 0 ? held.lease() : lease;
        // The first of several keys was extended first.
        long begun = Time.NEVER;
        for (byte[] key : terms.keys) {
            if (!extendKey(held, key, length)) {
                held.lose(Generated.NOT_HELD, null);
                return;
            }
            begun = Math.min(begun, sent);
        }
        held.renewed(begun, length);
    }

    private boolean extendKey(Held held, byte[] key, long lease) {
        Terms terms = held.terms;
        if (held.token().isEmpty()) {
            return new Plain(this::ask, key, terms.owner).extend(Time.millis(lease));
        }
        Ask ask = new Ask(EXTEND, key).with(key).with(terms.owner).within(held.lease() / 6);
        Ask dated = terms.isSession ? ask : ask.with("LEASE").with(Time.millis(lease));
        Object answer = ask(dated.with("TOKEN").with(held.token().getAsLong()));
        // The owner may hold it anew.
        Object token = Replies.field(answer, TOKEN);
        return token != null && (Long) token == held.token().getAsLong();
    }

    /** Like {@link #extend}, for a caller that waits. */
    void extendNow(Held held, long lease) {
        while (true) {
            held.throwIfOver();
            try {
                extend(held, lease);
                held.throwIfOver();
                return;
            } catch (Failure failure) {
                pause(budget.after(failure));
            }
        }
    }

    /**
     * Hands the lock over. It is asked once: after a lost answer the next renewal finds whether it is still held. Returns the
     * new token; null if the session of the new owner has ended in the same instant. {@code lease}: nanoseconds; 0 for none.
     */
    Long transfer(Held held, byte[] owner, long lease) {
        held.throwIfOver();
        Terms terms = held.terms;
        if (held.token().isEmpty()) {
            throw new NotSupported("a hand-over", null);
        }
        Ask ask = new Ask(TRANSFER, terms.key()).with(terms.key()).with(terms.owner).with("TO").with(owner);
        ask.with("TOKEN").with(held.token().getAsLong());
        if (lease > 0) {
            ask.with("LEASE").with(Time.millis(lease));
        }
        ask.isOnNewConnection = true;
        try {
            return (Long) Replies.field(ask(ask), TOKEN);
        } catch (Failure failure) {
            if (failure.code().equals("NOTHELD")) {
                held.lose(Generated.NOT_HELD, null);
                held.throwIfOver();
            }
            throw failure.refusal();
        }
    }

    /** Attaches a session to another connection. False if it has ended. */
    boolean attach(Held held) {
        try {
            ((Driver.Session) line).reconnect(budget.limit(0));
            ask(new Ask(SESSION, held.terms.key()).with("ATTACH").with(held.sessionId));
            return true;
        } catch (Failure failure) {
            if (failure.passes()) {
                throw failure;
            }
            return false;
        }
    }

    /** Releases every key. False if not all of them were held. A hold that is known to be lost is tried once: it ends by itself. */
    boolean release(Held held) {
        if (held.isLost()) {
            budget.tryOnce();
        }
        boolean wasHeld = true;
        for (byte[] key : held.terms.keys) {
            wasHeld &= releaseKey(held, key);
            held.mayBeReleased = true;
        }
        return wasHeld;
    }

    private boolean releaseKey(Held held, byte[] key) {
        Terms terms = held.terms;
        int failedBefore = budget.failures;
        while (true) {
            try {
                boolean hasFailed = budget.failures > failedBefore;
                boolean isReleased;
                if (held.token().isEmpty()) {
                    isReleased = new Plain(this::ask, key, terms.owner).release();
                } else if (terms.isReentrant() && hasFailed && permits(terms) < server.timesHeld(terms) + 1) {
                    isReleased = true;
                } else {
                    Ask ask = new Ask(RELEASE, key).with(key).with(terms.owner);
                    ask.isOnNewConnection = held.isLost();
                    isReleased = ask(ask.with("TOKEN").with(held.token().getAsLong())).equals(1L);
                }
                // A request whose answer was lost may have released it.
                return isReleased || hasFailed && !held.isLost();
            } catch (Failure failure) {
                held.mayBeReleased |= !failure.isReply();
                pause(budget.after(failure));
            }
        }
    }

    /** Releases what an interrupted acquisition may have been granted. Of others, nothing is known to be this owner's. */
    void giveUp(Terms terms) {
        if (!terms.hasNewOwners()) {
            return;
        }
        for (byte[] key : terms.keys) {
            try {
                if (server.isPlain) {
                    new Plain(this::ask, key, terms.owner).release();
                } else {
                    ask(new Ask(RELEASE, key).with(key).with(terms.owner));
                }
            } catch (Failure unanswered) {
                // It ends with its lease.
            }
        }
    }

    /** Who holds a key; null if there is no such key. */
    Holder lockedBy(byte[] key) {
        while (true) {
            try {
                if (server.isPlain) {
                    return new Plain(this::ask, key, null).holder();
                }
                return Holder.of(ask(new Ask(WHO, key).with(key)));
            } catch (Failure failure) {
                if (failure.isUnknownCommand()) {
                    server.isPlain = true;
                } else {
                    pause(budget.after(failure));
                }
            }
        }
    }

    /** Who holds what was refused: what LOCK.WHO says, or else the refusal itself. */
    private Holder holder(List<byte[]> keys, Map<String, Object> refused) {
        try {
            for (byte[] key : keys) {
                Holder found = Holder.of(ask(new Ask(WHO, key).with(key)));
                if (found != null) {
                    return found;
                }
            }
        } catch (Failure unanswered) {
            // A user may lack the right.
        }
        Holder holder = new Holder(Texts.text(keys.get(0)));
        holder.owner = Replies.text(refused.get("holder"));
        holder.token = (Long) refused.get("token");
        holder.leftMillis = (Long) refused.get("lease");
        holder.meta = Replies.texts(refused.get("meta"));
        return holder;
    }

    private Object ask(Ask ask) {
        ask.isInterruptible = isInterruptible;
        ask.until = budget.limit(ask.wait);
        // A connection cannot be opened by a thread that is interrupted.
        boolean wasInterrupted = !isInterruptible && Thread.interrupted();
        try {
            Object answer = line.ask(ask);
            sent = ask.sent;
            budget.isAnswered = true;
            return answer;
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void pause(long nanos) {
        if (nanos > 0) {
            line.pause(nanos, isInterruptible);
        }
    }
}
