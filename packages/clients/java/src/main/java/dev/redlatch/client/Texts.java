package dev.redlatch.client;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

/** Bytes of the server as text, and texts of others as they may be shown. */
final class Texts {
    private static final Pattern PLAIN = Pattern.compile("[\\w@%+=:,./-]+");

    private Texts() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] bytes(long number) {
        return Long.toString(number).getBytes(StandardCharsets.ISO_8859_1);
    }

    /** UTF-8; other bytes are shown as {@code \xff}. */
    static String text(byte[] value) {
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder()
                .onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT);
        ByteBuffer input = ByteBuffer.wrap(value);
        CharBuffer output = CharBuffer.allocate(4 * value.length);
        while (true) {
            CoderResult result = decoder.decode(input, output, true);
            if (!result.isError()) {
                return output.flip().toString();
            }
            for (int count = 0; count < result.length(); count++) {
                output.put(String.format("\\x%02x", input.get() & 0xff));
            }
        }
    }

    /** With escapes for what cannot be seen, moves the cursor or turns text around. */
    static String shown(String text) {
        StringBuilder shown = new StringBuilder();
        text.codePoints().forEach(point -> {
            if (isPrintable(point)) {
                shown.appendCodePoint(point);
            } else {
                shown.append(String.format(point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x", point));
            }
        });
        return shown.toString();
    }

    /** As one word of a shell. */
    static String quoted(String text) {
        return PLAIN.matcher(text).matches() ? text : "'" + text.replace("'", "'\"'\"'") + "'";
    }

    private static boolean isPrintable(int point) {
        switch (Character.getType(point)) {
            case Character.CONTROL:
            case Character.FORMAT:
            case Character.SURROGATE:
            case Character.PRIVATE_USE:
            case Character.UNASSIGNED:
            case Character.LINE_SEPARATOR:
            case Character.PARAGRAPH_SEPARATOR:
                return false;
            case Character.SPACE_SEPARATOR:
                return point == ' ';
            default:
                return true;
        }
    }
}
