package dev.redlatch.client;

/** How one of several keys is taken that is not exclusive: see {@link Lock#mode}. */
public final class Mode {
    final String[] words;

    private Mode(String... words) {
        this.words = words;
    }

    /**
     * Held together with other readers.
     *
     * @return the mode
     */
    public static Mode shared() {
        return new Mode("SHARED");
    }

    /**
     * Some permits of a semaphore.
     *
     * @param count how many are taken: 1 to the limit
     * @param limit how many there are
     * @return the mode
     * @throws IllegalArgumentException no server would grant so many
     */
    public static Mode permits(int count, int limit) {
        if (count < 1 || count > limit) {
            throw new IllegalArgumentException("permits: " + count + " of " + limit);
        }
        return new Mode("PERMITS", Integer.toString(count), "OF", Integer.toString(limit));
    }
}
