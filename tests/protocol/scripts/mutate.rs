//! Small changes to a Lua text, each of which gives another script.
//!
//! Owns    its own tokeniser, so that the reader is not checked by itself.
//! Knows   the subset of Lua in which lock scripts are written.

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
            _ if ["==", "~=", "<=", ">=", ".."].iter().any(|sign| rest.starts_with(sign)) => 2,
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

/// The replacements of a token, none of which is another spelling of it.
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

/// Words of scripts, for random ones.
pub(crate) const WORDS: &[&str] = &[
    "if", "then", "else", "elseif", "end", "local", "return", "for", "in", "do", "while", "function",
    "repeat", "until", "not", "and", "or", "nil", "true", "a", "b", "redis", ".", "call", "pcall", "(", ")",
    "[", "]", "{", "}", ",", ";", "=", "==", "~=", "KEYS", "ARGV", "1", "0", "'get'", "'set'", "'PX'",
    "\"x\"", "+", "-", "#", "...", ":", "ipairs", "\n", "KEYS[1]", "ARGV[1]", "redis.call('get', KEYS[1])",
];
