import java.net.URI;
import java.util.List;
import java.util.UUID;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;

/** A service that ships two orders, each under a lock. Without an argument it is right; else it has that bug. */
public final class Orders {
    private static final int LEASE_MS = 30_000;
    private static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    private static final String EXTEND =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

    private final String bug;
    private Jedis client = connect();

    private Orders(String bug) {
        this.bug = bug;
    }

    public static void main(String[] arguments) throws InterruptedException {
        Orders orders = new Orders(arguments.length > 0 ? arguments[0] : "");
        for (int order = 1; order <= 2; order++) {
            orders.ship("lock:order:" + order, UUID.randomUUID().toString());
        }
    }

    private static Jedis connect() {
        return new Jedis(URI.create(System.getenv("REDIS_URL")));
    }

    private void take(String key, String owner) throws InterruptedException {
        try {
            if (client.set(key, owner, SetParams.setParams().nx().px(LEASE_MS)) == null) {
                throw new IllegalStateException("somebody else ships it");
            }
        } catch (JedisConnectionException lost) {
            // It may have been granted.
            if (!bug.equals("forgets")) {
                giveBack(key, owner);
            }
            throw lost;
        }
    }

    /** Asks until a server answers: it may be about to restart. */
    private void giveBack(String key, String owner) throws InterruptedException {
        for (int attempt = 0; attempt < 1000; attempt++) {
            try {
                if (client.isBroken()) {
                    client = connect();
                }
                client.eval(RELEASE, List.of(key), List.of(owner));
                return;
            } catch (JedisConnectionException away) {
                Thread.sleep(5);
            }
        }
        throw new IllegalStateException("the server stays away");
    }

    private long release(String key, String owner) {
        switch (bug) {
            case "deletes":
                return client.del(key);
            case "looks":
                return owner.equals(client.get(key)) ? client.del(key) : 0;
            default:
                return (Long) client.eval(RELEASE, List.of(key), List.of(owner));
        }
    }

    private long seconds() {
        return Long.parseLong(client.time().get(0));
    }

    /** Whether it reads what the server says of its lock. */
    private boolean looks() {
        return !bug.equals("ignores");
    }

    private void ship(String key, String owner) throws InterruptedException {
        take(key, owner);
        try {
            long end = seconds() + LEASE_MS / 1000;
            client.incr("shipped");
            Object extended = client.eval(EXTEND, List.of(key), List.of(owner, String.valueOf(LEASE_MS)));
            if (bug.equals("wall-clock") && seconds() > end || extended.equals(0L) && looks()) {
                throw new IllegalStateException("the lock was lost");
            }
        } catch (JedisConnectionException | IllegalStateException lost) {
            giveBack(key, owner);
            throw lost;
        }
        if (release(key, owner) == 0 && looks()) {
            throw new IllegalStateException("the lock was lost");
        }
    }
}
