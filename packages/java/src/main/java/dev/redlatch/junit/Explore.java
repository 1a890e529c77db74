package dev.redlatch.junit;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A runner for {@code redlatch explore}: it stays, and runs tests of JUnit once for each line that it reads.
 *
 * <pre>redlatch explore --runner -- java -cp CLASSES dev.redlatch.junit.Explore com.example.OrdersTest#pays</pre>
 *
 * <p>A process cannot change its environment: the variables of a run are system properties, which {@link Variables#get} finds. Classes
 * in folders of the class path, which are those under test, are loaded anew for each run, and their static fields begin anew. Those in
 * jars stay.
 *
 * <p>It needs {@code org.junit.platform:junit-platform-launcher} in the class path.
 */
public final class Explore {
    private static final String USAGE = "usage: java -cp CLASSES dev.redlatch.junit.Explore CLASS | CLASS#METHOD ...";
    private static final String LAUNCHER = "org.junit.platform.launcher.Launcher";

    private Explore() {}

    /** Runs these tests for each line of the standard input, until that ends. */
    public static void main(String[] selected) throws IOException {
        if (selected.length == 0) {
            leave(USAGE);
        }
        try {
            Class.forName(LAUNCHER);
        } catch (ClassNotFoundException missing) {
            leave("org.junit.platform:junit-platform-launcher is not in the class path, which the runner needs");
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.US_ASCII);
        Tail tail = new Tail();
        PrintStream output = new PrintStream(tail, true, StandardCharsets.UTF_8);
        PrintStream error = System.err;
        // What the tests print is no answer, and what is asked is not for them.
        System.setIn(InputStream.nullInputStream());
        System.setOut(output);
        System.setErr(output);
        Set<String> before = Set.of();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, String> variables = Lines.variables(line);
            if (variables == null) {
                System.setErr(error);
                leave("not a line of redlatch explore: " + line);
            }
            before.forEach(System::clearProperty);
            variables.forEach(System::setProperty);
            before = variables.keySet();
            boolean isPassed = passes(List.of(selected), output);
            answers.println(Lines.answer(isPassed, tail.take()));
        }
        // What a test has left running does not keep it.
        System.exit(0);
    }

    /** Whether the tests pass. What a test throws at the launcher, such as an error of its class, is a failure of its run. */
    private static boolean passes(List<String> selected, PrintStream output) {
        try {
            return SelectedTests.pass(selected, output);
        } catch (ReflectiveOperationException | RuntimeException | LinkageError failure) {
            failure.printStackTrace(output);
            return false;
        } finally {
            output.flush();
        }
    }

    private static void leave(String text) {
        System.err.println("redlatch: " + text);
        System.exit(2);
    }
}
