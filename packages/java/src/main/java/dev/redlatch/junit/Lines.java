package dev.redlatch.junit;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The two lines of a run, in JSON: {@code {"env": {NAME: VALUE, ...}}}, and {@code {"passed": BOOL, "output": TEXT}}. */
final class Lines {
    private static final String TEXT = "\"([^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+)\"";
    private static final Pattern VARIABLE = Pattern.compile("\\s*" + TEXT + "\\s*:\\s*" + TEXT + "\\s*(,|$)");
    private static final Pattern LINE = Pattern.compile("\\s*\\{\\s*\"env\"\\s*:\\s*\\{(.*)\\}\\s*\\}\\s*", Pattern.DOTALL);
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");
    private static final String ESCAPED = "bfnrt";
    private static final String MEANT = "\b\f\n\r\t";

    private Lines() {}

    /** The variables of a run; null if the line has another form. */
    static Map<String, String> variables(String line) {
        Matcher whole = LINE.matcher(line);
        if (!whole.matches()) {
            return null;
        }
        Map<String, String> variables = new LinkedHashMap<>();
        Matcher variable = VARIABLE.matcher(whole.group(1));
        int end = 0;
        while (variable.find() && variable.start() == end) {
            variables.put(plain(variable.group(1)), plain(variable.group(2)));
            end = variable.end();
        }
        return whole.group(1).substring(end).isBlank() ? variables : null;
    }

    static String answer(boolean isPassed, String output) {
        StringBuilder line = new StringBuilder("{\"passed\":").append(isPassed).append(",\"output\":\"");
        for (char letter : output.toCharArray()) {
            boolean isPlain = letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
            line.append(isPlain ? String.valueOf(letter) : String.format("\\u%04x", (int) letter));
        }
        return line.append("\"}").toString();
    }

    private static String plain(String text) {
        return ESCAPE.matcher(text).replaceAll(escape -> Matcher.quoteReplacement(letter(escape.group(1), escape.group(2))));
    }

    /** What an escape means: a number of four digits, or a letter. */
    private static String letter(String digits, String letter) {
        if (digits != null) {
            return String.valueOf((char) Integer.parseInt(digits, 16));
        }
        int index = ESCAPED.indexOf(letter);
        return index < 0 ? letter : String.valueOf(MEANT.charAt(index));
    }
}
