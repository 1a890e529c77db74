package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.abort;

import dev.redlatch.client.Held;
import dev.redlatch.client.Locks;
import dev.redlatch.client.StaleToken;
import dev.redlatch.junit.Redlatch;
import dev.redlatch.junit.RedlatchServer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Fencing tokens in databases: {@code held.fenced}. */
class FenceTest {
    private static final String TABLE = "CREATE TABLE stock (count BIGINT NOT NULL);\nINSERT INTO stock VALUES (0);";
    private RedlatchServer server;
    private Library.Client client;
    private Locks locks;

    @BeforeEach
    void start() {
        server = RedlatchServer.start(1);
        Redlatch namespace = server.namespace();
        client = Library.JEDIS_2.client(Where.of(namespace));
        locks = client.locks;
    }

    @AfterEach
    void end() {
        client.close();
        server.close();
    }

    @Test
    void sqliteRefusesTheOlderHolder() throws Exception {
        Path folder = Servers.folder();
        refuses("jdbc:sqlite:" + folder.resolve("shop.db"), "sqlite", TABLE);
        Servers.remove(folder);
    }

    @Test
    void otherErrorsAreLeftAsTheyAre() throws Exception {
        try (Held held = locks.lock("stock").acquire();
                Connection without = DriverManager.getConnection("jdbc:sqlite::memory:")) {
            without.setAutoCommit(false);
            String said = assertThrows(SQLException.class, () -> held.fenced(without)).getMessage();
            assertTrue(said.contains("no such table"), said);
        }
    }

    @Test
    void postgresqlRefusesTheOlderHolder() throws Exception {
        try (Database database = new Database("postgres")) {
            Path data = database.folder.resolve("data");
            database.run(program("initdb"), "-A", "trust", "-U", "postgres", "-D", data.toString());
            int port = Servers.freePort();
            database.start(program("postgres"), "-D", data.toString(), "-k", database.folder.toString(), "-p", "" + port,
                    "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off");
            String url = "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=postgres";
            Servers.awaitUntil(() -> connects(url));
            refuses(url, "postgres", TABLE);
        }
    }

    @Test
    void mariadbRefusesTheOlderHolder() throws Exception {
        try (Database database = new Database("mysql")) {
            Path data = database.folder.resolve("data");
            database.run(program("mariadb-install-db"), "--no-defaults", "--datadir=" + data, "--skip-test-db");
            int port = Servers.freePort();
            database.start(program("mariadbd"), "--no-defaults", "--datadir=" + data,
                    "--socket=" + database.folder.resolve("s"), "--pid-file=" + database.folder.resolve("pid"),
                    "--bind-address=127.0.0.1", "--port=" + port, "--skip-grant-tables",
                    "--innodb-flush-log-at-trx-commit=0");
            String url = "jdbc:mariadb://127.0.0.1:" + port + "/%s?user=writer";
            Servers.awaitUntil(() -> connects(String.format(url, "")));
            try (Connection connection = DriverManager.getConnection(String.format(url, ""))) {
                install(connection, "CREATE DATABASE shop;");
            }
            refuses(String.format(url, "shop"), "mysql", TABLE);
        }
    }

    /** A newer holder writes twice; the older one, which it has outlived, may not. */
    private void refuses(String url, String kind, String table) throws Exception {
        Held older = locks.lock("stock").acquire();
        older.release();
        try (Connection connection = DriverManager.getConnection(url); Held newer = locks.lock("stock").acquire()) {
            install(connection, fence(kind));
            install(connection, table);
            String outside = assertThrows(IllegalArgumentException.class, () -> newer.fenced(connection)).getMessage();
            assertTrue(outside.contains("setAutoCommit(false)"), outside);
            connection.setAutoCommit(false);
            write(connection, newer);
            write(connection, newer);
            newer.fenced(connection, "another name");
            connection.commit();
            StaleToken stale = assertThrows(StaleToken.class, () -> write(connection, older));
            assertTrue(stale.getMessage().contains("stale fencing token"), stale.getMessage());
            rollBack(connection);
            assertEquals("2", value(connection, "SELECT count FROM stock"));
            assertEquals("2", value(connection, "SELECT count(*) FROM redlatch_fence"));
        }
    }

    private static void write(Connection connection, Held held) throws SQLException {
        held.fenced(connection);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE stock SET count = count + 1");
        }
        connection.commit();
    }

    /** SQLite has rolled back by itself, of which its driver learns by the error. */
    static void rollBack(Connection connection) throws SQLException {
        try {
            connection.rollback();
        } catch (SQLException error) {
            assertTrue(error.getMessage().contains("no transaction is active"), error.getMessage());
        }
    }

    static String fence(String kind) {
        Servers.Ran ran = Servers.run(List.of(Servers.redlatch(), "fence", "sql", kind), "");
        assertEquals(0, ran.code(), ran.output());
        return ran.output();
    }

    /** Runs statements, which end at the end of a line. {@code DELIMITER} is a word of MariaDB's own program. */
    static void install(Connection connection, String script) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String each : statements(script)) {
                statement.execute(each);
            }
        }
    }

    private static List<String> statements(String script) {
        List<String> statements = new ArrayList<>();
        StringBuilder open = new StringBuilder();
        String end = ";";
        boolean isQuoted = false;
        boolean isBlock = false;
        for (String line : script.split("\n")) {
            String text = line.strip();
            if (text.startsWith("DELIMITER ")) {
                end = text.substring(10).strip();
                continue;
            }
            if (text.isEmpty() || text.startsWith("--")) {
                continue;
            }
            open.append(line).append('\n');
            isQuoted ^= end.equals(";") && text.split("\\$\\$", -1).length % 2 == 0;
            isBlock = end.equals(";") && (isBlock || text.matches("(?i)begin.*|.* begin")) && !text.matches("(?i)end;?");
            if (text.endsWith(end) && !isQuoted && !isBlock) {
                String statement = open.toString().strip();
                statements.add(statement.substring(0, statement.length() - (end.equals(";") ? 0 : end.length())));
                open.setLength(0);
            }
        }
        return statements;
    }

    static String value(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            return rows.next() ? rows.getString(1) : null;
        }
    }

    private static boolean connects(String url) {
        try (Connection connection = DriverManager.getConnection(url)) {
            return connection.isValid(1);
        } catch (SQLException notYet) {
            return false;
        }
    }

    /** A program of the path, or of Debian's newest PostgreSQL. Skips the test without it, and says so. */
    private static String program(String name) {
        try (Stream<Path> versions = Files.list(Path.of("/usr/lib/postgresql"))) {
            List<Path> found = versions.map(each -> each.resolve("bin").resolve(name)).filter(Files::isExecutable)
                    .sorted(Comparator.reverseOrder()).toList();
            if (!found.isEmpty()) {
                return found.get(0).toString();
            }
        } catch (java.io.IOException none) {
            // There may be one in the path.
        }
        String found = Servers.program("REDLATCH_NO_VARIABLE", name);
        if (found == null) {
            System.err.println("skipped: " + name + " is not installed");
        }
        if (found == null && System.getenv("REDLATCH_REQUIRE_DATABASES") != null) {
            fail(name + " is not installed");
        }
        return found == null ? abort("skipped: " + name + " is not installed") : found;
    }

    /** A server in a directory of its own. As root, it runs as the user of its package. */
    private static final class Database implements AutoCloseable {
        final Path folder;
        private final Path parent = Servers.folder();
        private final List<String> as;
        private Process process;

        Database(String user) throws Exception {
            folder = Files.createDirectory(parent.resolve("database"));
            Files.setPosixFilePermissions(parent, PosixFilePermissions.fromString("rwxr-xr-x"));
            boolean isRoot = System.getProperty("user.name").equals("root");
            as = isRoot ? List.of(program("runuser"), "-u", user, "--") : List.of();
            if (isRoot) {
                Servers.run(List.of("chown", user, folder.toString()), "");
            }
        }

        void run(String... words) {
            Servers.Ran ran = Servers.run(command(words), "");
            assertEquals(0, ran.code(), ran.output());
        }

        void start(String... words) {
            process = Servers.launch(command(words), folder);
        }

        private List<String> command(String... words) {
            List<String> command = new ArrayList<>(as);
            command.addAll(List.of(words));
            return command;
        }

        @Override
        public void close() {
            if (process != null) {
                process.descendants().forEach(ProcessHandle::destroy);
                process.destroy();
                process.onExit().join();
            }
            Servers.remove(parent);
        }
    }
}
