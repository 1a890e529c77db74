package dev.redlatch.client;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Parts of answers. A map comes as a list of names and values. */
final class Replies {
    private Replies() {}

    static Map<String, Object> fields(Object reply) {
        if (reply == null) {
            return Map.of();
        }
        List<?> parts = (List<?>) reply;
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int index = 0; index + 1 < parts.size(); index += 2) {
            fields.put(text(parts.get(index)), parts.get(index + 1));
        }
        return fields;
    }

    /** What a map has under a name of ASCII; null if it has none, or there is no map. */
    static Object field(Object reply, byte[] name) {
        if (reply instanceof List) {
            List<?> parts = (List<?>) reply;
            for (int index = 0; index + 1 < parts.size(); index += 2) {
                if (java.util.Arrays.equals((byte[]) parts.get(index), name)) {
                    return parts.get(index + 1);
                }
            }
        }
        return null;
    }

    static Map<String, String> texts(Object reply) {
        Map<String, String> texts = new LinkedHashMap<>();
        fields(reply).forEach((name, value) -> texts.put(name, text(value)));
        return texts;
    }

    static String text(Object value) {
        return value == null ? null : Texts.text((byte[]) value);
    }
}
