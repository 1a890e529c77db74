package clients;

import dev.redlatch.junit.Redlatch;
import java.net.URI;

/** Where clients of a test connect to. */
record Where(Kind kind, String host, int port, String user, String password, String master) {
    /** How. */
    enum Kind { SINGLE, CLUSTER, SENTINEL }

    static Where of(Redlatch namespace) {
        URI address = URI.create(namespace.address());
        return new Where(Kind.SINGLE, address.getHost(), address.getPort(), null, namespace.password(), null);
    }

    static Where cluster(Redlatch namespace) {
        Where first = of(namespace);
        return new Where(Kind.CLUSTER, first.host, first.port, null, first.password, null);
    }

    static Where port(int port) {
        return new Where(Kind.SINGLE, "127.0.0.1", port, null, null, null);
    }

    Where as(String user, String password) {
        return new Where(kind, host, port, user, password, master);
    }

}
