//! Whether a script may find the libraries themselves in its world, and not tables that stand for them.
//!
//! A table that stands for another is empty and looks everything up, so that nothing can be changed behind it; every call
//! of a library's function pays for two such looks. A script that only ever writes `library.name(...)`, and names what is
//! global nowhere where it could be assigned to, cannot change any of it whatever it finds.
//!
//! Rule    what is not known to be harmless is not.
//! Source  Lua 5.1 reference manual, sections 2.4.3 and 8: where a name can be assigned to.

use super::lexer::{Lexeme, Token, tokens};

/// Libraries that a script may have itself; what is called most comes first.
pub(super) const LIBRARIES: &[&str] =
    &["redis", "string", "table", "cjson", "math", "bit", "struct", "cmsgpack", "coroutine", "server"];
/// Functions that it may name.
pub(super) const FUNCTIONS: &[&str] = &[
    "assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget", "select",
    "tonumber", "tostring", "type", "unpack", "xpcall", "collectgarbage", "gcinfo",
];
/// What it is called on.
pub(super) const INPUTS: &[&str] = &["KEYS", "ARGV"];

/// Whether a text only uses what is global, and no other than those names `is_global` for.
pub(super) fn is_direct(script: &[u8], is_global: impl Fn(&str) -> bool) -> bool {
    let Ok(lexemes) = tokens(script) else { return false };
    let at = |place: Option<usize>| place.and_then(|place| lexemes.get(place)).map(|lexeme| &lexeme.token);
    lexemes.iter().enumerate().all(|(place, Lexeme { token, .. })| {
        let Token::Name(name) = token else { return true };
        let before = at(place.checked_sub(1));
        if before.is_some_and(|before| before.is_any(&[".", ":"])) {
            return true;
        }
        if LIBRARIES.contains(name) {
            let is_field = at(Some(place + 1)).is_some_and(|dot| dot.is("."));
            return is_field && is_only_read(before, at(Some(place + 3)));
        }
        match FUNCTIONS.contains(name) || INPUTS.contains(name) {
            true => is_only_read(before, at(Some(place + 1))),
            false => !is_global(name),
        }
    })
}

/// Whether a name between those two words, or a field of it, is no place that is assigned to.
fn is_only_read(before: Option<&Token<'_>>, behind: Option<&Token<'_>>) -> bool {
    // A list of places begins a statement, and none begins behind these.
    let begins_values = before.is_some_and(|before| before.is_any(&["(", "{", "#", "=", "return", "in"]));
    match behind {
        _ if before.is_some_and(|before| before.is("function")) => false,
        Some(behind) if behind.is("=") => false,
        Some(behind) if behind.is(",") => begins_values,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(script: &str) -> bool {
        is_direct(script.as_bytes(), |name| {
            ["_G", "getfenv", "loadstring", "setmetatable", "gcinfo"].contains(&name)
        })
    }

    #[test]
    fn a_script_that_only_calls_is_direct() {
        for script in [
            "return redis.call('get', KEYS[1])",
            "local call, n = redis.call, #ARGV return call('mget', unpack(KEYS, 1, n))",
            "redis.log(redis.LOG_NOTICE, tostring(ARGV[1])) return redis.status_reply('OK')",
            "for i, key in ipairs(KEYS) do local found = string.find(key, 'x') if found then return i end end",
            "for i, key in pairs(KEYS), nil do end return { ARGV, KEYS }",
            "local t = {} t.string = 1 t.redis = { 1 } t.math, t.x = 2, 3 return t:type()",
            "x = 1 return absent",
            "return ('x'):rep(3) .. math.floor(1.5) .. tostring(pcall(redis.call, 'x'))",
            "local function f(...) return select('#', ...) end return f(type, next)",
        ] {
            assert!(direct(script), "{script}");
        }
    }

    #[test]
    fn a_script_that_could_change_or_keep_what_is_global_is_not() {
        for script in [
            "string.find = 1", "string.find, x = 1, 2", "x, string.find = 1, 2",
            "x, string.find, y = 1, 2, 3", "function string.find() end", "function redis.call.x() end",
            "local s = string s.find = 1", "local t = { string } t[1].find = 1", "string['find'] = 1",
            "(string).find = 1", "rawset(string, 'find', 1)", "string:find('x')",
            "for name in pairs(redis) do end", "return redis", "tonumber = 1", "x, tonumber = 1, 2",
            "tonumber, x = 1, 2", "x, tonumber, y = 1, 2, 3", "function tonumber() end", "KEYS = {}",
            "ARGV, x = 1, 2", "pcall(function() ARGV, x = 1, 2 end)", "if x then next, y = 1, 2 end",
            "local tonumber = tonumber", "_G.x = 1", "getfenv(1).string = nil",
            "loadstring('string.find = 1')()", "gcinfo = 1", "loadstring = 1", "setmetatable({}, {})",
            "return 'unfinished",
        ] {
            assert!(!direct(script), "{script}");
        }
        let long = ["return 1 --", &"x".repeat(20_000)].concat();
        assert!(!direct(&long), "nobody looks at so much");
    }
}
