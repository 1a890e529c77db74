//! How much a script could do, as far as its words tell, before it runs.
//!
//! Rule    a script that takes long may hold a thread, and has to be kept away from those that serve connections. So what the
//!         words do not rule out counts as possible: no loop but one that counts to a number which stands there, nothing is
//!         called but what is known to be short, by its own name, and no command but one that is named there.
//! Unit    bytes: a nanosecond or a few for each. Whatever a script looks at is no larger than the largest value there is,
//!         or than what it is given, or than what it has joined of them.
//! Source  Lua 5.1 reference manual, section 2.4.

use super::Inputs;
use super::lexer::{Lexeme, TOKENS_MAX, Token, tokens};

/// What a script does at most, in proportion to values: each number counts how often.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Effort {
    /// Values looked at under their keys.
    pub values: u64,
    /// KEYS and ARGV looked at: arguments of commands and functions.
    pub inputs: u64,
    /// Texts looked at that it has from commands or has joined: arguments, comparisons, joints.
    pub texts: u64,
    /// Messages published.
    pub publications: u64,
    /// Texts joined, other than with one that stands in the script: each time may double one.
    pub joints: u64,
    /// Texts made of many: each time one may become as many times longer as there are values.
    pub gathers: u64,
    /// Values that are joined to one text at most, where that is known; a text counts as one at least.
    pub longest: u64,
    /// Lists whose elements are keys of a call.
    pub lists: u64,
    /// Which lists those are.
    pub spread: Spread,
}

/// Which lists a script hands to a command that takes any number of keys, the longest kind.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Spread {
    /// None.
    #[default]
    None,
    /// KEYS, ARGV, or a list of its own.
    Given,
    /// A reply, perhaps.
    Any,
}

/// What a script may do by one call of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Brief {
    /// More than to look once at the words and at what their keys hold.
    No,
    /// That, with a number of keys that does not depend on how many words there are.
    FewKeys,
    /// That, with any number of keys.
    AnyKeys,
}

/// What an effort is in proportion to.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the largest value.
    pub largest: u64,
    /// The work of publishing one message.
    pub message: u64,
}

/// The effort of a script that looks at few of its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Little {
    /// How often it goes through as much as the largest value.
    values: u64,
    /// Messages published.
    publications: u64,
}

impl Little {
    /// The work that it may be.
    #[inline]
    pub fn work(&self, sizes: Sizes) -> u64 {
        let published = self.publications.saturating_mul(sizes.message);
        self.values.saturating_mul(sizes.largest).saturating_add(published)
    }
}

/// Bytes that an element of a value takes at least.
const ELEMENT_BYTES: u64 = 16;

impl Effort {
    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            inputs: self.inputs.saturating_add(other.inputs),
            texts: self.texts.saturating_add(other.texts),
            publications: self.publications.saturating_add(other.publications),
            joints: self.joints.saturating_add(other.joints),
            gathers: self.gathers.saturating_add(other.gathers),
            longest: self.longest.max(other.longest),
            lists: self.lists.saturating_add(other.lists),
            spread: self.spread.max(other.spread),
        }
    }

    /// The same so many times.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self {
            values: self.values.saturating_mul(times),
            inputs: self.inputs.saturating_mul(times),
            texts: self.texts.saturating_mul(times),
            lists: self.lists.saturating_mul(times),
            publications: self.publications.saturating_mul(times),
            joints: self.joints.saturating_mul(times),
            gathers: self.gathers.saturating_mul(times),
            ..self
        }
    }

    /// The work that it may be on these KEYS and ARGV.
    pub fn work(&self, inputs: Inputs<'_>, sizes: Sizes) -> u64 {
        let given = inputs.bytes();
        let words = self.inputs.saturating_add(self.texts).saturating_add(inputs.len() as u64);
        let keys = match self.spread {
            Spread::None => 0,
            Spread::Given => words,
            Spread::Any => words.saturating_add(sizes.largest / ELEMENT_BYTES),
        };
        let values = self.values.saturating_add(self.lists.saturating_mul(keys));
        Self { values, ..*self }.work_on(given, sizes)
    }

    /// The same worked out as far as it can be, whatever the inputs: for a script that looks at few of them.
    pub fn little(&self) -> Little {
        let values = self.values.saturating_add(self.texts.saturating_mul(self.growth()));
        Little { values, publications: self.publications }
    }

    fn work_on(&self, given: u64, sizes: Sizes) -> u64 {
        let values = self.values.saturating_mul(sizes.largest);
        let inputs = self.inputs.saturating_mul(given);
        let longest = sizes.largest.saturating_add(given).saturating_mul(self.growth());
        let texts = self.texts.saturating_mul(longest);
        let published = self.publications.saturating_mul(sizes.message);
        values.saturating_add(inputs).saturating_add(texts).saturating_add(published)
    }

    /// How many times longer than what it is given a text may become.
    fn growth(&self) -> u64 {
        let doubled = 2_u64.saturating_pow(u32::try_from(self.joints).unwrap_or(u32::MAX));
        let gathered = self.texts.saturating_pow(u32::try_from(self.gathers).unwrap_or(u32::MAX));
        doubled.saturating_mul(gathered.max(1)).saturating_mul(self.longest.max(1))
    }
}

/// What the script does at most; `None` where its words do not tell. `brief` says what a command of that name is.
pub fn effort(text: &[u8], brief: impl Fn(&[u8]) -> Brief) -> Option<Effort> {
    let lexemes = tokens(text).ok()?;
    let mut reader =
        Reader { rounds: vec![1], length: 0, effort: Effort::default(), takes_any_keys: false, brief };
    let mut at = 0;
    while let Some((lexeme, behind)) = lexemes[at..].split_first() {
        at = lexemes.len() - reader.token(&lexemes[..at], &lexeme.token, behind)?.len();
    }
    let effort = reader.effort;
    // Which call a list is for is not looked at.
    let takes_lists = reader.takes_any_keys && effort.spread != Spread::None;
    let (lists, spread) = if takes_lists { (effort.values, effort.spread) } else { Default::default() };
    Some(Effort { lists, spread, ..effort })
}

struct Reader<B> {
    /// How often each open block runs for every time that the script does, the script itself first.
    rounds: Vec<usize>,
    /// Tokens, as if all loops were written out.
    length: usize,
    effort: Effort,
    /// Whether one of its commands does.
    takes_any_keys: bool,
    brief: B,
}

impl<B: Fn(&[u8]) -> Brief> Reader<B> {
    /// Takes a token between those `before` and `behind`; what is left to be read.
    fn token<'t, 'a>(
        &mut self,
        before: &[Lexeme<'_>],
        token: &Token<'_>,
        behind: &'t [Lexeme<'a>],
    ) -> Option<&'t [Lexeme<'a>]> {
        let now = self.rounds.last().copied().unwrap_or(1);
        self.length = self.length.saturating_add(now);
        if self.length > TOKENS_MAX {
            return None;
        }
        let last = before.last().map(|lexeme| &lexeme.token);
        match token {
            // A method is whatever its object says.
            Token::Mark("while" | "repeat" | "function" | ":") => return None,
            Token::Mark("for") => {
                let Counted { rounds, behind } = Counted::read(behind)?;
                self.rounds.push(now.saturating_mul(rounds));
                return Some(behind);
            }
            Token::Mark("do" | "if") => self.rounds.push(now),
            Token::Mark("end") => drop(self.rounds.pop()),
            // `f "text"` and `f {}` are calls, too, and so is whatever stands before a parenthesis.
            Token::Mark("(") if last.is_some_and(is_value) => return None,
            Token::Mark("{") | Token::Text(_) if last.is_some_and(|last| is_value(last) || is_name(last)) => {
                return None;
            }
            Token::Mark("..") => {
                self.effort.joints += if adds_what_is_said(before, behind) { 0 } else { now as u64 };
                self.effort.texts += now as u64;
            }
            Token::Mark("(" | "," | "<" | ">" | "<=" | ">=") => self.effort.texts += now as u64,
            Token::Name(name) => self.name(before, name, behind, now as u64)?,
            _ => {}
        }
        Some(behind)
    }

    /// A name. One that stands for a function is only ever called, a function of a library only by both their names: so
    /// that no value of the script is a function.
    fn name(&mut self, before: &[Lexeme<'_>], name: &str, behind: &[Lexeme<'_>], now: u64) -> Option<()> {
        let is_called = behind.first().is_some_and(|next| next.token.is("("));
        let is_field = |before: &[Lexeme<'_>]| before.last().is_some_and(|last| last.token.is("."));
        let is_short = match before {
            [owners @ .., Lexeme { token: Token::Name(library), .. }, dot]
                if dot.token.is(".") && LIBRARIES.contains(library) && !is_field(owners) =>
            {
                if is_called {
                    self.call(name, &behind[1..], now)
                } else {
                    is_constant(name)
                }
            }
            _ if is_field(before) => !is_called,
            _ if LIBRARIES.contains(&name) => behind.first().is_some_and(|next| next.token.is(".")),
            _ if FUNCTIONS.contains(&name) => is_called,
            _ => !is_called && !HIDDEN.contains(&name),
        };
        if name == "unpack" {
            let is_given = matches!(behind, [open, Lexeme { token: Token::Name("KEYS" | "ARGV"), .. }, close, ..]
                if open.token.is("(") && close.token.is(")"));
            self.effort.spread = self.effort.spread.max(if is_given { Spread::Given } else { Spread::Any });
        }
        is_short.then_some(())
    }

    /// A call to a function of a library, with these `arguments` and what follows them; whether it is short.
    fn call(&mut self, function: &str, arguments: &[Lexeme<'_>], now: u64) -> bool {
        match function {
            "call" | "pcall" => {
                let [Lexeme { token: Token::Text(command), .. }, next, ..] = arguments else { return false };
                if !next.token.is_any(&[",", ")"]) {
                    return false;
                }
                let is =
                    |names: &[&str]| names.iter().any(|name| command.eq_ignore_ascii_case(name.as_bytes()));
                self.effort.publications += if is(&["PUBLISH", "SPUBLISH"]) { now } else { 0 };
                let brief = (self.brief)(command);
                self.effort.values += now;
                self.takes_any_keys |= brief == Brief::AnyKeys;
                !is(GROWING) && brief != Brief::No
            }
            "concat" | "format" => {
                self.effort.gathers += now;
                true
            }
            function => SHORT.contains(&function),
        }
    }
}

/// Whether what is joined on either side of `..` stands in the script: on the right, or on the left with nothing before it.
fn adds_what_is_said(before: &[Lexeme<'_>], behind: &[Lexeme<'_>]) -> bool {
    let is_said = |lexeme: &Lexeme<'_>| matches!(lexeme.token, Token::Number(_) | Token::Text(_));
    match (before, behind) {
        (_, [right, ..]) if is_said(right) => true,
        ([.., joint, left], _) => is_said(left) && !joint.token.is(".."),
        _ => false,
    }
}

/// Whether a token may be the end of a value, other than a name.
fn is_value(token: &Token<'_>) -> bool {
    matches!(token, Token::Text(_)) || token.is_any(&[")", "]", "}"])
}

fn is_name(token: &Token<'_>) -> bool {
    matches!(token, Token::Name(_))
}

/// What libraries have beside functions.
fn is_constant(field: &str) -> bool {
    field.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') || matches!(field, "huge" | "pi")
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

/// Commands that may leave more than they found, and more than they were given.
const GROWING: &[&str] = &["APPEND", "SETRANGE"];

/// Libraries with short functions.
const LIBRARIES: &[&str] = &["bit", "math", "os", "redis", "server", "string", "table"];

/// Their functions that take no longer than it takes to look once at what they are given, and answer with one value.
const SHORT: &[&str] = &[
    "abs",
    "arshift",
    "band",
    "bnot",
    "bor",
    "bswap",
    "bxor",
    "ceil",
    "clock",
    "error_reply",
    "floor",
    "fmod",
    "getn",
    "insert",
    "len",
    "log",
    "lower",
    "lshift",
    "max",
    "min",
    "mod",
    "pow",
    "random",
    "randomseed",
    "remove",
    "replicate_commands",
    "reverse",
    "rol",
    "ror",
    "rshift",
    "set_repl",
    "setresp",
    "sha1hex",
    "sqrt",
    "status_reply",
    "sub",
    "tobit",
    "tohex",
    "upper",
];

/// Short functions that belong to no library.
const FUNCTIONS: &[&str] = &["assert", "error", "select", "tonumber", "tostring", "type", "unpack"];

/// What else a name of a script's world may stand for: ways to a function that its words do not show.
const HIDDEN: &[&str] = &["_G", "cjson", "cmsgpack", "coroutine", "debug", "package"];

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told(text: &str) -> bool {
        effort(text.as_bytes(), brief).is_some()
    }

    fn of(text: &str) -> Effort {
        effort(text.as_bytes(), brief).unwrap()
    }

    fn brief(name: &[u8]) -> Brief {
        match name.to_ascii_uppercase().as_slice() {
            b"KEYS" => Brief::No,
            b"DEL" | b"MGET" => Brief::AnyKeys,
            _ => Brief::FewKeys,
        }
    }

    #[test]
    fn a_script_that_shows_what_it_calls_is_told_by_its_words() {
        for text in [
            "local n = redis.call('incr', KEYS[1]) if n == 1 then return n end return ARGV[1]",
            "return redis.call('set', 'while', 'for') -- while true do end",
            "do local a = {} if a then return 1 elseif b then return 2 else return 3 end end",
            "local t = {} t.key = 'lock:' .. KEYS[1] .. ':' .. ARGV[1] return redis.sha1hex(t.key)",
            "redis.log(redis.LOG_WARNING, 'x') local max, len = math.huge, #KEYS return {max, len, (1 + 2) * 3}",
            "redis.setresp(3) return {'find', server.pcall('GET', 'rep').x, type(nil)}",
            "if redis.call('get', KEYS[1]) then (nil).x = 1 end",
        ] {
            assert!(is_told(text), "{text}");
        }
    }

    #[test]
    fn a_loop_that_counts_to_a_small_number_is_as_good_as_written_out() {
        let once = of("redis.call('get', KEYS[1])");
        assert_eq!(once, Effort { values: 1, texts: 2, ..Effort::default() });
        assert_eq!(of("for i = 1, 5 do redis.call('get', KEYS[1]) end"), once.times(5));
        assert!(is_told("for i = 1, 10 do for j = 1, 10 do n = n + 1 end end for i = 9, 1 do end"));
        for text in [
            "for i = 1, 10 do for j = 1, 10 do for k = 1, 10 do n = n + 1 end end end",
            "for i = 1, 1e9 do end",
            "for i = 1, 99999999999999999999 do end",
            "for i = 1, 18446744073709551615 do for j = 1, 18446744073709551615 do end end",
            "local n = #KEYS for i = 1, 18446744073709551615 do n = redis.call('incr', KEYS[1]) .. n .. n end",
            "for i = 1, 5000 do end",
            "for i = 1, n do end",
            "for i = 1, 5, 0 do end",
            "for i = 1, 2 + 3 do end",
            "for i = 1, #KEYS do end",
            "for _, key in ipairs(KEYS) do end",
        ] {
            assert!(!is_told(text), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_to_be_short_is_not_told() {
        for text in [
            "while true do end",
            "repeat until false",
            "local function f() return f() end return f()",
            "return ('x'):rep(2^28)",
            "return string['rep']('x', 2^28)",
            "return string.rep('x', 2^28)",
            "local f = string.rep return f('x', 2^28)",
            "return cjson.encode(t)",
            "return cjson['decode'](ARGV[1])",
            "local library = cmsgpack return library.unpack(ARGV[1])",
            "return redis.call('keys', '*')",
            "return redis.call('k' .. 'eys', '*')",
            "return redis.call(ARGV[1], '*')",
            "return redis.call 'KEYS'",
            "local call = redis.call return call('keys', '*')",
            "return redis[ARGV[1]]('keys', '*')",
            "local r = redis return r.call('keys', '*')",
            "local tonumber = redis[ARGV[1]] return tonumber('keys', '*')",
            "return pcall(redis.call, 'keys', '*')",
            "return _G.redis.call('keys', '*')",
            "return getfenv(0)",
            "local t, s = {}, '' t[ARGV[1]] = s[ARGV[2]] return t.len(s, 1e9)",
            "return redis.call('append', KEYS[1], ARGV[1])",
            "return (redis.call)('get', 'k')",
            "end end for",
            "return 'open",
        ] {
            assert!(!is_told(text), "{text}");
        }
        assert!(!is_told(&" a = 1".repeat(TOKENS_MAX)));
    }

    #[test]
    fn work_grows_with_what_is_looked_at_and_with_what_it_may_become() {
        let inputs = Inputs::new(&[], &[]);
        let sizes = Sizes { largest: 1000, message: 10 };
        let work = |text: &str| of(text).work(inputs, sizes);
        assert_eq!(work("return 1"), 0);
        assert_eq!(work("redis.call('get', KEYS[1])"), 3000);
        assert_eq!(work("for i = 1, 100 do redis.call('get', KEYS[1]) end"), 300_000);
        assert_eq!(work("local s = ARGV[1] .. ARGV[1]"), 2000);
        assert_eq!(work("local s = '{' .. ARGV[1] .. '}:' .. 1"), 3000);
        assert_eq!(work("s = s .. '-' .. s"), 2 * 2000);
        assert_eq!(work("s = s .. s s = s .. s s = s .. s"), 8 * 3000);
        assert_eq!(work("redis.call('publish', KEYS[1], 'x')"), 4010);
        assert_eq!(work("redis.call('mget', unpack(KEYS))"), 7000);
        assert_eq!(work("redis.call('hmget', 'h', unpack(t))"), 5000);
        assert_eq!(work("redis.call('mget', unpack(t))"), 4000 + (3 + 1000 / ELEMENT_BYTES) * 1000);
        assert!(work("for i = 1, 99 do s = s .. s end") > 1 << 60);
        assert!(work("for i = 1, 99 do s = table.concat(t) end") > 1 << 60);
        let given = [b"ten bytes.".as_slice(); 3];
        assert_eq!(of("redis.call('get', KEYS[1])").work(Inputs::new(&given, &[]), sizes), 1000 + 2 * 1030);
    }
}
