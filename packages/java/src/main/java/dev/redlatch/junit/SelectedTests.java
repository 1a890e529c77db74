package dev.redlatch.junit;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import java.io.File;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary;

/** Tests of JUnit that run again and again in this process. All that needs the launcher is here. */
final class SelectedTests {
    private static final Launcher LAUNCHER = LauncherFactory.create();

    private SelectedTests() {}

    /** Runs the tests, with classes of their own, and prints what has failed. Whether there are some, and all pass. */
    static boolean pass(List<String> selected, PrintStream output) throws ReflectiveOperationException {
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        // It is not closed: what a test has left running may load classes yet.
        ClassLoader classes = new OwnClasses(before);
        thread.setContextClassLoader(classes);
        try {
            List<DiscoverySelector> selectors = new ArrayList<>();
            for (String name : selected) {
                selectors.add(selector(name, classes));
            }
            LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request().selectors(selectors).build();
            SummaryGeneratingListener listener = new SummaryGeneratingListener();
            LAUNCHER.execute(request, listener);
            return tell(listener.getSummary(), selected, output);
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    /** {@code CLASS}, {@code CLASS#METHOD} or {@code CLASS#METHOD(TYPE, ...)}. */
    private static DiscoverySelector selector(String name, ClassLoader classes) throws ReflectiveOperationException {
        int method = name.indexOf('#');
        if (method < 0) {
            return selectClass(classes.loadClass(name));
        }
        Class<?> owner = classes.loadClass(name.substring(0, method));
        int types = name.indexOf('(');
        if (types < 0) {
            return selectMethod(owner, name.substring(method + 1));
        }
        return selectMethod(owner, name.substring(method + 1, types), name.substring(types + 1, name.lastIndexOf(')')));
    }

    private static boolean tell(TestExecutionSummary summary, List<String> selected, PrintStream output) {
        PrintWriter writer = new PrintWriter(output, true);
        if (summary.getTotalFailureCount() > 0) {
            summary.printFailuresTo(writer);
        } else if (summary.getTestsFoundCount() == 0) {
            writer.println("there is no test in " + String.join(", ", selected));
        }
        writer.flush();
        return summary.getTotalFailureCount() == 0 && summary.getTestsFoundCount() > 0;
    }

    /** Loads what is in the folders of the class path itself, and leaves the rest to the loader of this process. */
    private static final class OwnClasses extends URLClassLoader {
        static {
            registerAsParallelCapable();
        }

        OwnClasses(ClassLoader parent) {
            super(folders(), parent);
        }

        @Override
        protected Class<?> loadClass(String name, boolean isToResolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                if (found == null && findResource(name.replace('.', '/') + ".class") != null) {
                    found = findClass(name);
                }
                return found != null ? found : super.loadClass(name, isToResolve);
            }
        }

        private static URL[] folders() {
            List<URL> folders = new ArrayList<>();
            for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
                File file = new File(path.isEmpty() ? "." : path);
                if (file.isDirectory()) {
                    folders.add(url(file));
                }
            }
            return folders.toArray(new URL[0]);
        }

        private static URL url(File folder) {
            try {
                return folder.toURI().toURL();
            } catch (MalformedURLException failure) {
                throw new IllegalArgumentException(folder + ": " + failure.getMessage(), failure);
            }
        }
    }
}
