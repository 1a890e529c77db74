package examples;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.redlatch.junit.Explore;
import dev.redlatch.junit.Variables;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The runner for {@code redlatch explore}: what is found with it, and what its runs leave to each other, which is nothing. */
class ExploreTest {
    private static final String CLASSES = System.getProperty("java.class.path");
    private static final String BINARY = System.getenv().getOrDefault("REDLATCH_BINARY", "redlatch");
    private static final String EMPTY_RUN = "{\"env\":{}}\n";

    @TempDir
    Path folder;

    @Test
    void aLockThatIsDeletedWithoutALookIsFound() throws Exception {
        Run run = explore("examples.Explored#wrong");
        assertEquals(1, run.status, run.error);
        boolean isFound = run.output.lines()
                .anyMatch(line -> line.contains("\"foreign-delete\"") && line.contains("\"paused@SET:1\""));
        assertTrue(isFound, run.output);
        assertTrue(run.error.contains("19 failures met"), run.error);
    }

    @Test
    void theTestThatIsPrintedFailsUntilTheBugIsMended() throws Exception {
        List<String> command = new ArrayList<>(List.of(BINARY, "explore", "--runner", "--"));
        command.addAll(runner(CLASSES, "examples.Explored#wrong"));
        String test = run("", command).output.split("shows a bug:\\R\\R")[1];
        Path file = Files.writeString(folder.resolve("LocksSurviveTest.java"), test);
        String[] options = {"-cp", CLASSES, "-d", folder.toString(), file.toString()};
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, options));
        Files.createSymbolicLink(folder.resolve("redlatch"), Path.of(BINARY).toAbsolutePath());

        List<String> keeps = runner(folder + File.pathSeparator + CLASSES, "LocksSurviveTest");
        String path = folder + File.pathSeparator + System.getenv("PATH");
        Run before = run(EMPTY_RUN, keeps, Map.of("PATH", path));
        assertTrue(before.output.startsWith("{\"passed\":false,"), before.output + before.error);
        assertTrue(before.output.contains("1 failures met, 1 findings, "), before.output);
        Run after = run(EMPTY_RUN, keeps, Map.of("PATH", path, "MENDED", "1"));
        assertTrue(after.output.startsWith("{\"passed\":true,"), after.output + after.error);
    }

    @Test
    void eachRunBeginsAnewAndNothingIsFoundInATestThatIsRight() throws Exception {
        Run run = explore("examples.Explored#right");
        assertEquals("", run.output);
        assertEquals(0, run.status, run.error);
        assertTrue(run.error.contains(" failures met, 0 findings"), run.error);
    }

    @Test
    void aTestThatFailsByItselfIsShownAsIsOneThatIsNotThere() throws Exception {
        Map<String, String> selected = Map.of(
                "examples.Explored#fails", "so it is",
                "examples.Explored#nothing", "nothing",
                "examples.Nothing", "ClassNotFoundException: examples.Nothing",
                "examples.ExploreTest$Run", "there is no test in examples.ExploreTest$Run",
                "examples.Explored#exits", "the runner has ended");
        for (Map.Entry<String, String> test : selected.entrySet()) {
            Run run = explore(test.getKey());
            assertEquals(2, run.status, run.error);
            assertTrue(run.error.contains("the command already fails without an injected failure"), run.error);
            assertTrue(run.error.contains(test.getValue()), run.error);
        }
    }

    @Test
    void whatATestPrintsIsOutput() throws Exception {
        Run run = run(EMPTY_RUN + EMPTY_RUN, runner(CLASSES, "examples.Explored#prints"));
        assertEquals(0, run.status, run.error);
        assertEquals("", run.error);
        String answer = "{\"passed\":true,\"output\":\"by the output, gr\\u00f6\\u00dfer\\u000aby the error\\u000a\"}\n";
        assertEquals(answer + answer, run.output.replace("\r", ""));
    }

    @Test
    void theVariablesOfARunArePropertiesOfThatRun() throws Exception {
        String text = "a \\\"b\\\" \\\\ {c}: \\u00e4\\n\\/, ö";
        String lines = "{\"env\": {\"FIRST\": \"" + text + "\", \"SECOND\":\"\"}}\n{\"env\":{\"THIRD\":\"3\"}}\n";
        Run run = run(lines, runner(CLASSES, Shows.class.getName()));
        String first = "first a \\u0022b\\u0022 \\u005c {c}: \\u00e4\\u000a/, \\u00f6\\u000asecond \\u000athird null\\u000a";
        String second = "first null\\u000asecond null\\u000athird 3\\u000a";
        for (String part : List.of(first, second)) {
            assertTrue(run.output.contains("{\"passed\":true,\"output\":\"" + part + "\"}"), run.output + run.error);
        }
    }

    @Test
    void withoutTheLauncherOrWithALineOfAnotherFormTheRunnerSaysSoInALine() throws Exception {
        String test = "examples.Explored#prints";
        String without = List.of(CLASSES.split(File.pathSeparator)).stream()
                .filter(path -> !path.contains("junit-platform-launcher")).collect(Collectors.joining(File.pathSeparator));
        Map<Run, String> runs = Map.of(
                run("", runner(without, test)), "redlatch: org.junit.platform:junit-platform-launcher is not in the class path",
                run("", runner(CLASSES)), "redlatch: usage: ",
                run("what\n", runner(CLASSES, test)), "redlatch: not a line of redlatch explore: what",
                run("{}\n", runner(CLASSES, test)), "redlatch: not a line of redlatch explore: {}",
                run("{\"env\": {\"A\": 1}}\n", runner(CLASSES, test)), "redlatch: not a line of redlatch explore: ");
        for (Map.Entry<Run, String> run : runs.entrySet()) {
            String error = run.getKey().error;
            assertEquals(2, run.getKey().status, error);
            assertEquals("", run.getKey().output);
            assertTrue(error.startsWith(run.getValue()), error);
            assertFalse(Pattern.compile("\n.").matcher(error).find(), error);
        }
    }

    /** Shows variables. Surefire looks for tests in other classes. */
    static class Shows {
        @Test
        void shows() {
            for (String name : List.of("first", "second", "third")) {
                System.out.println(name + " " + Variables.get(name.toUpperCase(Locale.ROOT)));
            }
        }
    }

    private static final class Run {
        final int status;
        final String output;
        final String error;

        Run(int status, String output, String error) {
            this.status = status;
            this.output = output;
            this.error = error;
        }
    }

    private Run explore(String test) throws Exception {
        List<String> command = new ArrayList<>(List.of(BINARY, "explore", "--runner", "--format", "json", "--"));
        command.addAll(runner(CLASSES, test));
        return run("", command);
    }

    private static List<String> runner(String classes, String... tests) {
        String java = ProcessHandle.current().info().command().orElseThrow();
        List<String> command = new ArrayList<>(List.of(java, "-cp", classes, Explore.class.getName()));
        command.addAll(List.of(tests));
        return command;
    }

    private Run run(String input, List<String> command) throws IOException, InterruptedException {
        return run(input, command, Map.of());
    }

    private Run run(String input, List<String> command, Map<String, String> variables)
            throws IOException, InterruptedException {
        Path output = folder.resolve("output");
        Path error = folder.resolve("error");
        Path lines = Files.writeString(folder.resolve("lines"), input);
        ProcessBuilder builder = new ProcessBuilder(command).redirectInput(lines.toFile())
                .redirectOutput(output.toFile()).redirectError(error.toFile());
        builder.environment().putAll(variables);
        Process process = builder.start();
        int status = process.waitFor();
        return new Run(status, text(output), text(error));
    }

    private static String text(Path file) throws IOException {
        return new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
    }
}
