//! Small changes to a Lua text, each of which should make it another script.
//!
//! Owns    a tokeniser of its own, so that the recogniser's is not what judges it.
//! Knows   the subset of Lua in which scripts of the table are written.

/// The tokens of a text, without comments and white space.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let length = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'-' if rest.starts_with("--[[") => {
                at += rest.find("]]").map_or(rest.len(), |end| end + 2);
                continue;
            }
            b'-' if rest.starts_with("--") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            quote @ (b'"' | b'\'') => 2 + rest[1..].find(char::from(quote)).expect("a closed string"),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => rest
                .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
                .unwrap_or(rest.len()),
            _ if rest.starts_with("==") || rest.starts_with("~=") => 2,
            _ => 1,
        };
        found.push(&rest[..length]);
        at += length;
    }
    found
}

/// Every single mutation of a text; none equals it token by token.
pub(crate) fn all(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let mut change = |with: &[&str], taken: usize| {
            let mut changed = tokens.clone();
            changed.splice(at..at + taken, with.iter().copied());
            if changed != tokens {
                found.push(changed.join(" "));
            }
        };
        let token = tokens[at];
        change(&[], 1);
        change(&[token, token], 1);
        if let Some(next) = tokens.get(at + 1) {
            change(&[next, token], 2);
        }
        for other in replacements(token) {
            change(&[other], 1);
        }
        if token == "return" || token == "redis" {
            change(&["redis", ".", "call", "(", "'ping'", ")", token], 1);
        }
    }
    found
}

/// What a token is replaced with; never a spelling of the same.
fn replacements(token: &str) -> &'static [&'static str] {
    match token {
        "KEYS" => &["ARGV", "keys", "Keys"],
        "ARGV" => &["KEYS", "argv"],
        "==" => &["~=", "<", "="],
        "~=" => &["==", ">"],
        "<" => &[">", "=="],
        ">" => &["<", "=="],
        "and" => &["or"],
        "or" => &["and"],
        "not" => &["-", "#"],
        "call" => &["pcall", "Call"],
        "pcall" => &["call"],
        "redis" => &["Redis", "string", "x"],
        "true" => &["false", "nil", "1"],
        "false" => &["true", "nil", "0"],
        "nil" => &["false", "0"],
        "0" => &["1", "00", "-0", "'0'"],
        "1" => &["2", "0", "3", "'1'"],
        "2" => &["1", "3"],
        "if" => &["while", "elseif"],
        "else" => &["elseif", "end"],
        "+" => &["-", "*", ".."],
        "-" => &["+"],
        "tonumber" => &["tostring", "type"],
        _ if token.starts_with(['\'', '"']) => {
            &["'get'", "'set'", "'pttl'", "'incr'", "'x'", "'XX'", "'EX'", "''", "nil"]
        }
        _ => &[],
    }
}

/// The mutations that change nothing, by the rule that says so.
pub(crate) fn means_the_same(text: &str, mutated: &str) -> bool {
    let (old, new) = (normal(text), normal(mutated));
    old == new
}

/// A text with what the recogniser folds on purpose written in one way, by plain replacement.
fn normal(text: &str) -> Vec<String> {
    let tokens = tokens(text);
    // A replaced command may differ from the old one by quotes and letter case alone.
    let text = |token: &&str| match token.strip_prefix(['\'', '"']) {
        Some(inner) => format!("'{}'", inner.trim_end_matches(['\'', '"']).to_ascii_uppercase()),
        None => (*token).to_owned(),
    };
    // A separator between two statements may come and go.
    let kept: Vec<String> = tokens.iter().filter(|token| **token != ";").map(text).collect();
    // A whole number that is an argument of a call says what the string of its digits says.
    kept.iter()
        .enumerate()
        .map(|(at, token)| {
            let is_argument = kept.get(at.wrapping_sub(1)).is_some_and(|before| before == ",")
                && kept.get(at + 1).is_some_and(|after| after == ")" || after == ",");
            if is_argument && matches!(token.as_str(), "0" | "1") {
                format!("'{token}'")
            } else {
                token.clone()
            }
        })
        .collect()
}

/// Words that make up scripts, for random ones.
pub(crate) const WORDS: &[&str] = &[
    "if",
    "then",
    "else",
    "elseif",
    "end",
    "local",
    "return",
    "for",
    "in",
    "do",
    "while",
    "function",
    "repeat",
    "until",
    "not",
    "and",
    "or",
    "nil",
    "true",
    "a",
    "b",
    "redis",
    ".",
    "call",
    "pcall",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    "=",
    "==",
    "~=",
    "KEYS",
    "ARGV",
    "1",
    "0",
    "'get'",
    "'set'",
    "'PX'",
    "\"x\"",
    "+",
    "-",
    "#",
    "...",
    ":",
    "ipairs",
    "\n",
    "KEYS[1]",
    "ARGV[1]",
    "redis.call('get', KEYS[1])",
];

/// What may stand between two tokens of one line.
pub(crate) const BLANKS: &[&str] = &[" ", "\t", "  ", " --[[ note ]] ", " --[==[ ]] ]==]", " \x0b\x0c"];
