package examples;

import dev.redlatch.client.Held;
import dev.redlatch.client.Locks;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;

/** Writes under a lock into a database that refuses the write of a holder that was paused beyond its lease. */
public final class Orders {
    /** The connection has auto-commit off; the caller rolls back when this fails. */
    public static void closeOrder(Locks locks, Connection database, int order) throws SQLException, InterruptedException {
        try (Held held = locks.lock("lock:order:" + order).waiting(Duration.ofSeconds(5)).acquire();
                PreparedStatement update = database.prepareStatement("UPDATE orders SET state = 'closed' WHERE id = ?")) {
            held.fenced(database, "orders");
            update.setInt(1, order);
            update.executeUpdate();
            database.commit();
        }
    }
}
