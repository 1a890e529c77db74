package dev.redlatch.junit;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;

/**
 * Where the program is. In this order: the variable REDLATCH_BINARY; the jar of this platform in the class path, whose
 * program is copied to a folder that goes with this process; the search path.
 */
final class Binary {
    private static final String SYSTEM = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
    private static final boolean IS_WINDOWS = SYSTEM.startsWith("windows");
    private static final String NAME = IS_WINDOWS ? "redlatch.exe" : "redlatch";
    private static final Map<String, String> MACHINES = Map.of("amd64", "x86_64", "arm64", "aarch64");

    /** The copy of the program in a jar: one for all servers of this process. */
    private static String copy;

    private Binary() {}

    static String find() {
        String named = System.getenv("REDLATCH_BINARY");
        if (named != null && !named.isEmpty()) {
            return named;
        }
        String packed = packed();
        String found = packed != null ? packed : searched();
        if (found == null) {
            throw new IllegalStateException("there is no program 'redlatch': no jar with the classifier " + platform()
                    + " is in the class path, there is no " + NAME + " in PATH, and REDLATCH_BINARY is not set");
        }
        return found;
    }

    /** The classifier of the jar for this platform. */
    static String platform() {
        String system = IS_WINDOWS ? "windows" : SYSTEM.startsWith("mac") ? "macos" : "linux";
        String machine = System.getProperty("os.arch", "");
        return system + "-" + MACHINES.getOrDefault(machine, machine);
    }

    private static synchronized String packed() {
        if (copy != null && new File(copy).canExecute()) {
            return copy;
        }
        try (InputStream program = Binary.class.getResourceAsStream("/META-INF/redlatch/" + platform() + "/" + NAME)) {
            if (program == null) {
                return null;
            }
            Path folder = Files.createTempDirectory("redlatch-");
            Path file = folder.resolve(NAME);
            // Files go in the reverse order.
            folder.toFile().deleteOnExit();
            file.toFile().deleteOnExit();
            Files.copy(program, file);
            if (!file.toFile().setExecutable(true)) {
                throw new IOException(file + " cannot be made executable: java.io.tmpdir must be a folder for programs");
            }
            copy = file.toString();
            return copy;
        } catch (IOException failure) {
            throw new UncheckedIOException("redlatch cannot be copied out of its jar: " + failure.getMessage(), failure);
        }
    }

    private static String searched() {
        // Windows calls the variable Path; asked for by its name it is the same one.
        String path = System.getenv("PATH");
        for (String folder : (path == null ? "" : path).split(File.pathSeparator)) {
            File file = new File(folder, NAME);
            if (!folder.isEmpty() && file.isFile() && file.canExecute()) {
                return file.getPath();
            }
        }
        return null;
    }
}
