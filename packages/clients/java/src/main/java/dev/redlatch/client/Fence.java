package dev.redlatch.client;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Map;

/** The statement with which a database checks a fencing token: that of {@code redlatch fence sql}. */
final class Fence {
    private static final Map<String, String> STATEMENTS = Map.of(
            "SQLite", "INSERT OR REPLACE INTO redlatch_fence VALUES (?, ?)",
            "PostgreSQL", "SELECT redlatch_fence(?, ?)",
            "MariaDB", "CALL redlatch_fence(?, ?)",
            "MySQL", "CALL redlatch_fence(?, ?)");

    private Fence() {}

    static void check(Connection connection, String name, long token) throws SQLException {
        String product = connection.getMetaData().getDatabaseProductName();
        String sql = STATEMENTS.get(product);
        if (sql == null) {
            throw new IllegalArgumentException(product + " has no fence, only " + String.join(", ", STATEMENTS.keySet()));
        }
        if (connection.getAutoCommit()) {
            throw new IllegalArgumentException("a fence protects nothing where each statement commits by itself: setAutoCommit(false)");
        }
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setString(1, name);
            statement.setLong(2, token);
            statement.execute();
        } catch (SQLException error) {
            if (String.valueOf(error.getMessage()).contains("stale fencing token")) {
                throw new StaleToken(error.getMessage(), error);
            }
            throw error;
        }
    }
}
