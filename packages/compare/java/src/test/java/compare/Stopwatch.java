package compare;

/** Prints how long the start of the server and the body of a test take. */
final class Stopwatch {
    private long since = System.nanoTime();

    void print(String part) {
        System.out.printf("stopwatch %s %.6f%n", part, (System.nanoTime() - since) / 1e9);
        since = System.nanoTime();
    }
}
