//! Whether a script could take long, as far as its words tell.
//!
//! Rule    a script that takes long may hold a thread, and has to be kept away from those that serve connections; to send it
//!         away costs more than most scripts do. So the answer is yes whenever the words do not rule it out, and no only
//!         where they do: no recursion, no search, no loop but one that counts to a number which stands there.
//! Source  Lua 5.1 reference manual, section 2.4.

use super::lexer::{Lexeme, TOKENS_MAX, Token, tokens};

/// Whether a script could take long: written out without its loops, it would be longer than any script without loops that
/// is looked at, or it has a function of its own, a loop whose end is not known, or calls what may work for long on little.
/// One that hides its words, in a key of a table that it computes, is held by its budget all the same.
pub fn may_run_long(text: &[u8]) -> bool {
    let Ok(lexemes) = tokens(text) else { return true };
    // How often each open block runs for every time that the script does, the script itself first.
    let mut rounds = vec![1_usize];
    let (mut length, mut joints) = (0_usize, 0);
    let mut rest = lexemes.as_slice();
    while let Some((lexeme, behind)) = rest.split_first() {
        rest = behind;
        let now = rounds.last().copied().unwrap_or(1);
        length = length.saturating_add(now);
        match &lexeme.token {
            Token::Mark("while" | "repeat" | "function") => return true,
            Token::Mark("for") => match Counted::read(behind) {
                Some(Counted { rounds: more, behind }) => {
                    rounds.push(now.saturating_mul(more));
                    rest = behind;
                }
                None => return true,
            },
            Token::Mark("do" | "if") => rounds.push(now),
            Token::Mark("end") => drop(rounds.pop()),
            Token::Mark("..") => joints += now,
            Token::Name(name) if is_long(name.as_bytes()) => return true,
            Token::Text(text) if is_long(text) => return true,
            _ => {}
        }
        if length > TOKENS_MAX || joints > JOINTS_MAX {
            return true;
        }
    }
    false
}

/// The head of a loop that counts from one numeral to another.
struct Counted<'t, 'a> {
    rounds: usize,
    behind: &'t [Lexeme<'a>],
}

impl<'t, 'a> Counted<'t, 'a> {
    /// Reads what stands behind `for`; `None` for any other head.
    fn read(lexemes: &'t [Lexeme<'a>]) -> Option<Self> {
        let [name, equals, first, comma, last, open, behind @ ..] = lexemes else { return None };
        let is_head = matches!(name.token, Token::Name(_))
            && equals.token.is("=")
            && comma.token.is(",")
            && open.token.is("do");
        let [Token::Number(first), Token::Number(last)] = [&first.token, &last.token] else { return None };
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        is_head.then(|| Self { rounds: last.saturating_sub(first).saturating_add(1), behind })
    }
}

fn is_long(name: &[u8]) -> bool {
    LONG_NAMES.contains(&name)
}

/// Functions whose work is not in proportion to the script's text.
const LONG_NAMES: &[&[u8]] = &[
    b"find",
    b"match",
    b"gmatch",
    b"gfind",
    b"gsub",
    b"rep",
    b"sort",
    b"load",
    b"loadstring",
    b"foreach",
    b"foreachi",
    // They take long for each byte, and what they read may come from anywhere; a table in many places is written as often.
    b"cjson",
    b"cmsgpack",
    b"encode",
    b"decode",
    b"pack",
];

/// How often a script may join texts: each time may double one, and what works in proportion to it then takes long.
const JOINTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_without_loops_and_searches_does_not_run_long() {
        for text in [
            "local n = redis.call('incr', KEYS[1]) if n == 1 then return n end return ARGV[1]",
            "return redis.call('set', 'while', 'for') -- while true do end",
            "do local a = {} if a then return 1 elseif b then return 2 else return 3 end end",
            "local t = {} t.key = 'lock:' .. KEYS[1] .. ':' .. ARGV[1] return redis.sha1hex(t.key)",
        ] {
            assert!(!may_run_long(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_loop_that_counts_to_a_small_number_is_as_good_as_written_out() {
        let words = "for i = 1, 5 do if redis.call('get', KEYS[1]) then n = n + 1 end end";
        assert!(!may_run_long(words.as_bytes()));
        assert!(!may_run_long(b"for i = 1, 10 do for j = 1, 10 do n = n + 1 end end for i = 9, 1 do end"));
        for text in [
            "for i = 1, 10 do for j = 1, 10 do for k = 1, 10 do n = n + 1 end end end",
            "for i = 1, 1e9 do end",
            "for i = 1, 99999999999999999999 do end",
            "for i = 1, 18446744073709551615 do for j = 1, 18446744073709551615 do end end",
            "for i = 1, 5000 do end",
            "for i = 1, n do end",
            "for i = 1, 5, 0 do end",
            "for i = 1, 2 + 3 do end",
            "for i = 1, #KEYS do end",
            "for _, key in ipairs(KEYS) do end",
        ] {
            assert!(may_run_long(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_to_be_short_may_be_long() {
        for text in [
            "while true do end",
            "repeat until false",
            "local function f() return f() end return f()",
            "return ('x'):rep(2^28)",
            "return string['rep']('x', 2^28)",
            "return cjson.encode(t)",
            "return cjson['decode'](ARGV[1])",
            "local library = cmsgpack return library.unpack(ARGV[1])",
            "local s = '1,' for i = 1, 9 do s = s .. s end return redis.sha1hex(s)",
            "local s = ARGV[1] .. 1 .. 2 .. 3 .. 4 .. 5 .. 6 .. 7 .. 8 .. 9 return s",
            "end end for",
            "return 'open",
        ] {
            assert!(may_run_long(text.as_bytes()), "{text}");
        }
        assert!(may_run_long(" a = 1".repeat(TOKENS_MAX).as_bytes()));
    }
}
