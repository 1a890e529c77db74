package dev.redlatch.junit;

import java.util.List;
import java.util.Map;

/** Replies as the types that the documentation gives them. */
final class Replies {
    private Replies() {}

    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> maps(Object reply) {
        return (List<Map<String, Object>>) reply;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object reply) {
        return (Map<String, Object>) reply;
    }
}
