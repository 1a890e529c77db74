import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;

/** The read/write lock: many readers, or one writer, who may read as well. */
final class ReadWriteLocks {
    private static final long LEASE_MS = 300;
    private static final long WATCHDOG_MS = 600;
    private static final Checks CHECKS = new Checks("read/write lock");

    private ReadWriteLocks() {}

    static void run(RedissonClient here, RedissonClient there) throws Exception {
        LockChecks.Kind write = (client, name) -> client.getReadWriteLock(name).writeLock();
        new LockChecks("write lock", write).run(here, there);
        ReentrantLocks.reentry("write lock", here, there, write);
        try (Owner first = new Owner(here); Owner second = new Owner(there); Owner third = new Owner(there)) {
            sharing(first, second, third);
            downgrade(first, second);
            leases(first, second, third);
            force(first, second);
            watchdog(second);
        }
        race(here, there);
    }

    private static void sharing(Owner first, Owner second, Owner writer) throws Exception {
        RLock reading = read(first, "sharing");
        RLock too = read(second, "sharing");
        RLock writing = write(writer, "sharing");
        first.does(reading::lock);
        CHECKS.check("a second reader is let in", second.gets(() -> too.tryLock()));
        CHECKS.check("both read", first.gets(reading::isHeldByCurrentThread)
                && second.gets(too::isHeldByCurrentThread));
        CHECKS.check("a writer is refused", !writer.gets(() -> writing.tryLock()));
        CHECKS.check("a reader cannot become a writer", !first.gets(() -> write(first, "sharing").tryLock()));
        boolean isRefused = writer.isRefused(IllegalMonitorStateException.class, writing::unlock);
        CHECKS.check("release by a non-owner is refused", isRefused);
        isRefused = writer.isRefused(IllegalMonitorStateException.class, read(writer, "sharing")::unlock);
        CHECKS.check("also as a reader", isRefused);
        first.does(reading::lock);
        CHECKS.check("a reader may come in twice", first.gets(reading::getHoldCount) == 2);
        Future<Boolean> waiting = writer.begins(() -> writing.tryLock(20, 10, SECONDS));
        first.does(reading::unlock);
        first.does(reading::unlock);
        Checks.sleepMs(100);
        CHECKS.check("a writer waits for the last reader", !waiting.isDone());
        long start = System.nanoTime();
        second.does(too::unlock);
        boolean isServed = Owner.ended(waiting);
        long waited = Checks.msSince(start);
        CHECKS.check("and is served when it leaves", isServed && waited < 5_000, isServed, waited);
        CHECKS.check("a reader is refused then", !first.gets(() -> reading.tryLock()));
        Future<Boolean> patient = first.begins(() -> reading.tryLock(20, 10, SECONDS));
        Future<Boolean> another = second.begins(() -> too.tryLock(20, 10, SECONDS));
        Checks.sleepMs(100);
        CHECKS.check("readers wait for the writer", !patient.isDone() && !another.isDone());
        writer.does(writing::unlock);
        CHECKS.check("and are let in together", Owner.ended(patient) && Owner.ended(another));
        first.does(reading::unlock);
        second.does(too::unlock);
        CHECKS.check("the last one leaves it free", !reading.isLocked() && !writing.isLocked());
    }

    private static void downgrade(Owner first, Owner second) throws Exception {
        RLock writing = write(first, "downgrade");
        RLock reading = read(first, "downgrade");
        first.does(writing::lock);
        CHECKS.check("a writer may read", first.gets(() -> reading.tryLock()));
        CHECKS.check("others may not", !second.gets(() -> read(second, "downgrade").tryLock()));
        first.does(writing::unlock);
        CHECKS.check("it gives back the one and keeps the other", !writing.isLocked()
                && first.gets(reading::isHeldByCurrentThread));
        CHECKS.check("others may read then", second.gets(() -> read(second, "downgrade").tryLock()));
        CHECKS.check("and not write", !second.gets(() -> write(second, "downgrade").tryLock()));
        second.does(read(second, "downgrade")::unlock);
        first.does(reading::unlock);
        CHECKS.check("all is given back", second.gets(() -> write(second, "downgrade").tryLock()));
        second.does(write(second, "downgrade")::unlock);
    }

    /** Each reader has a lease of its own, and the longest one counts. */
    private static void leases(Owner first, Owner second, Owner writer) throws Exception {
        RLock brief = read(first, "leases");
        RLock longer = read(second, "leases");
        RLock writing = write(writer, "leases");
        long start = System.nanoTime();
        CHECKS.check("a short lease", first.gets(() -> brief.tryLock(0, LEASE_MS, MILLISECONDS)));
        CHECKS.check("a longer one", second.gets(() -> longer.tryLock(0, 3 * LEASE_MS, MILLISECONDS)));
        CHECKS.check("a writer waits", writer.gets(() -> writing.tryLock(20, 10, SECONDS)));
        long held = Checks.msSince(start);
        CHECKS.check("for the longer one to end", held >= 3 * LEASE_MS, held);
        boolean isRefused = first.isRefused(IllegalMonitorStateException.class, brief::unlock)
                && second.isRefused(IllegalMonitorStateException.class, longer::unlock);
        CHECKS.check("lapsed readers cannot release", isRefused);
        writer.does(writing::unlock);
    }

    private static void force(Owner first, Owner second) throws Exception {
        RLock reading = read(first, "force");
        first.does(reading::lock);
        Future<Boolean> waiting = second.begins(() -> write(second, "force").tryLock(20, 10, SECONDS));
        Checks.sleepMs(50);
        CHECKS.check("somebody may end a read lock by force", reading.forceUnlock());
        CHECKS.check("which serves a writer", Owner.ended(waiting));
        second.does(write(second, "force")::unlock);
    }

    private static void watchdog(Owner writer) throws Exception {
        RedissonClient watched = Servers.open(config -> config.setLockWatchdogTimeout(WATCHDOG_MS));
        try (Owner reader = new Owner(watched)) {
            RLock reading = read(reader, "watched");
            RLock writing = write(writer, "watched");
            reader.does(reading::lock);
            boolean isTaken = writer.gets(() -> writing.tryLock(2 * WATCHDOG_MS, MILLISECONDS));
            CHECKS.check("a read lock is renewed for as long as it is held", !isTaken && reading.isLocked());
            reader.does(reading::unlock);
            CHECKS.check("and no longer", writer.gets(() -> writing.tryLock()));
            writer.does(writing::unlock);
        } finally {
            watched.shutdown();
        }
    }

    /** Writers race; readers in between never meet one. */
    private static void race(RedissonClient here, RedissonClient there) throws Exception {
        AtomicInteger writers = new AtomicInteger();
        AtomicInteger meetings = new AtomicInteger();
        List<Owner> owners = List.of(new Owner(here), new Owner(there), new Owner(here));
        List<Owner> readers = List.of(new Owner(here), new Owner(there));
        List<Future<Void>> reads = readers.stream().map(reader -> reader.<Void>begins(() -> {
            for (int round = 0; round < 20; round++) {
                RLock reading = read(reader, "race");
                take(reading);
                meetings.addAndGet(writers.get());
                reading.unlock();
            }
            return null;
        })).toList();
        CHECKS.race(owners, (owner, critical) -> {
            RLock writing = write(owner, "race");
            take(writing);
            writers.incrementAndGet();
            critical.run();
            writers.decrementAndGet();
            writing.unlock();
        });
        for (Future<Void> read : reads) {
            Owner.ended(read);
        }
        CHECKS.check("no reader meets a writer", meetings.get() == 0, meetings.get());
        owners.forEach(Owner::close);
        readers.forEach(Owner::close);
    }

    /**
     * Asks again each second. The message of a writer lets those go who wait when it comes: one that is about to wait
     * would sleep for the rest of the lease it has seen.
     */
    private static void take(RLock lock) throws InterruptedException {
        while (!lock.tryLock(1, SECONDS)) {
            // It is asked for again.
        }
    }

    private static RLock read(Owner owner, String name) {
        return lock(owner, name).readLock();
    }

    private static RLock write(Owner owner, String name) {
        return lock(owner, name).writeLock();
    }

    private static RReadWriteLock lock(Owner owner, String name) {
        return owner.client.getReadWriteLock("rw:" + name);
    }
}
