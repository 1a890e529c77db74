package clients;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.util.KeyValue;

/** A connection beside the client's, of an operator who takes no locks. Texts are strings, maps are maps. */
final class Beside implements AutoCloseable {
    private final Supplier<Connection> connect;
    private Connection connection;

    Beside(Supplier<Connection> connect) {
        this.connect = connect;
    }

    static Beside to(Where where) {
        return new Beside(() -> new Connection(new HostAndPort(where.host(), where.port()), config(where).build()));
    }

    static DefaultJedisClientConfig.Builder config(Where where) {
        return DefaultJedisClientConfig.builder()
                .protocol(RedisProtocol.RESP3)
                .socketTimeoutMillis(5_000)
                .user(where.user())
                .password(where.password());
    }

    Object ask(Object... words) {
        if (connection == null) {
            connection = connect.get();
        }
        CommandArguments arguments = new CommandArguments(() -> words[0].toString().getBytes(StandardCharsets.UTF_8));
        for (int index = 1; index < words.length; index++) {
            arguments.add(words[index].toString());
        }
        try {
            return readable(connection.executeCommand(arguments));
        } catch (JedisConnectionException ended) {
            close();
            throw ended;
        }
    }

    @Override
    public void close() {
        if (connection != null) {
            Connection ended = connection;
            // It would connect again by itself, without its login.
            connection = null;
            try {
                ended.disconnect();
            } catch (JedisConnectionException broken) {
                // Its server has been killed.
            }
        }
    }

    private static Object readable(Object answer) {
        if (answer instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        if (!(answer instanceof List<?> parts)) {
            return answer;
        }
        if (!parts.isEmpty() && parts.get(0) instanceof KeyValue) {
            Map<Object, Object> map = new LinkedHashMap<>();
            for (Object each : parts) {
                KeyValue<?, ?> field = (KeyValue<?, ?>) each;
                map.put(readable(field.getKey()), readable(field.getValue()));
            }
            return map;
        }
        List<Object> list = new ArrayList<>();
        parts.forEach(each -> list.add(readable(each)));
        return list;
    }
}
