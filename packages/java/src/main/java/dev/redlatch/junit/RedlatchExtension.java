package dev.redlatch.junit;

import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store.CloseableResource;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.platform.commons.support.AnnotationSupport;

/**
 * Gives each test a {@link Redlatch} of its own as a parameter of its test, BeforeEach and AfterEach methods.
 *
 * <p>One server, for each number of nodes, serves all tests. When a test has ended, faults that never hit are told on the standard
 * error, and if the test has failed, its timeline is shown there.
 */
public final class RedlatchExtension implements AfterEachCallback, ParameterResolver {
    private static final Namespace STORE = Namespace.create(RedlatchExtension.class);

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Redlatch.class && context.getTestMethod().isPresent();
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return context.getStore(STORE).getOrComputeIfAbsent(Redlatch.class, key -> begin(context), Redlatch.class);
    }

    /** Warns and shows; a server that cannot tell does not hide how the test ended. */
    @Override
    public void afterEach(ExtensionContext context) {
        Redlatch redlatch = context.getStore(STORE).remove(Redlatch.class, Redlatch.class);
        if (redlatch == null) {
            return;
        }
        String test = "'" + context.getDisplayName() + "'";
        try {
            for (Map<String, Object> fault : redlatch.faults().list()) {
                if (fault.get("hits").equals(0L)) {
                    print("fault " + fault.get("id") + " never hit in " + test + ": " + fault.get("rule"));
                }
            }
            if (context.getExecutionException().isPresent()) {
                print("timeline of " + test + "\n" + redlatch.timeline());
            }
        } catch (RuntimeException failure) {
            print("the server does not tell what happened in " + test + ": " + failure.getMessage());
        }
        try {
            redlatch.close();
        } catch (RuntimeException failure) {
            print("the namespace of " + test + " is not dropped: " + failure.getMessage());
        }
    }

    private static Redlatch begin(ExtensionContext context) {
        Optional<RedlatchTest> ofMethod = AnnotationSupport.findAnnotation(context.getElement(), RedlatchTest.class);
        Optional<RedlatchTest> options =
                ofMethod.or(() -> AnnotationSupport.findAnnotation(context.getTestClass(), RedlatchTest.class));
        int nodes = options.map(RedlatchTest::nodes).orElse(1);
        ExtensionContext.Store shared = context.getRoot().getStore(STORE);
        Running running = shared.getOrComputeIfAbsent(nodes, key -> new Running(nodes), Running.class);
        Redlatch redlatch = running.server.namespace();
        if (options.map(RedlatchTest::freeze).orElse(false)) {
            redlatch.clock().freeze();
        }
        return redlatch;
    }

    private static void print(String text) {
        System.err.println("redlatch: " + text);
    }

    /** The server for a number of nodes, which ends with the run: JUnit 5 closes the one interface, JUnit 6 asks for the other. */
    private static final class Running implements CloseableResource, AutoCloseable {
        final RedlatchServer server;

        Running(int nodes) {
            server = RedlatchServer.start(nodes);
        }

        @Override
        public void close() {
            server.close();
        }
    }
}
