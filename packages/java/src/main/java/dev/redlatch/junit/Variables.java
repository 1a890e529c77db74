package dev.redlatch.junit;

/** Variables of a run of {@code redlatch explore}, as code under test may read them. */
public final class Variables {
    private Variables() {}

    /**
     * A variable; null if there is none. In the runner {@link Explore} it is the system property of that name, because a process
     * cannot change its environment; without the runner it is in the environment.
     */
    public static String get(String name) {
        String property = System.getProperty(name);
        return property != null ? property : System.getenv(name);
    }
}
