//! The shape of a script: its text with everything taken out that does not change its meaning.
//!
//! Owns    the promise that scripts of one shape mean the same, and the SHA-1 that names a shape.
//! Knows   the lexer and the two passes over its tokens, `fold` and `walk`; runs nothing.
//! Bounds  linear in the tokens times the locals in scope (at most [`LOCALS_MAX`]); no recursion.
//! Source  Lua 5.1 reference manual, sections 2.4 to 2.6.
//!
//! Two scripts of one shape do the same to the operands in their holes. What is folded is therefore only what cannot
//! matter: white space, comments, quotes and escapes, a `;` between two statements, parentheses around a whole
//! condition or a whole returned value, the names of locals, locals that only rename a KEYS or ARGV, the letter case
//! of a literal command name or option, and `server.call` for `redis.call`. Every other token stays as it is.

use sha1::{Digest, Sha1};

use super::fold::fold;
use super::lexer;
use super::walk::Walk;

/// The most locals that may be in scope at once; Lua's own limit.
pub const LOCALS_MAX: usize = 200;
/// The deepest nesting of blocks and brackets together.
pub const DEPTH_MAX: usize = 100;
/// The most different operands.
pub const HOLES_MAX: usize = 64;

/// Why a text has no shape. Such a script may still be good Lua; it is just never recognised.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotAShape {
    /// A call's parenthesis stands on a line of its own, which Lua 5.1 refuses.
    #[error("ambiguous call across lines")]
    AmbiguousCall,
    /// `repeat`, or a function with an implied `self`: known Lua that no recognised script uses.
    #[error("a construct that is never recognised")]
    Foreign,
    /// More bytes, tokens, locals, holes or nesting than a lock script has.
    #[error("too long or too deep")]
    TooLong,
    /// Brackets or blocks that do not match.
    #[error("unbalanced brackets or blocks")]
    Unbalanced,
    /// A byte or an escape that no Lua token has.
    #[error("unexpected byte")]
    UnexpectedByte,
    /// A string or a long comment that does not end.
    #[error("unfinished string or comment")]
    UnfinishedText,
}

/// What stands in a hole.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Operand {
    /// `ARGV[i]`, counted from 1.
    Argument(u16),
    /// `KEYS[i]`, counted from 1.
    Key(u16),
    /// A string written in the script, or a whole number in its place.
    Literal(Box<[u8]>),
}

/// A script without its spelling.
#[derive(Clone, Debug)]
pub struct Shape {
    canonical: String,
    holes: Vec<Operand>,
    call_lines: Vec<u32>,
}

impl Shape {
    /// The shape of this text.
    ///
    /// # Errors
    /// [`NotAShape`] where the text cannot be a recognised script; not every text that passes is good Lua.
    pub fn of(script: &[u8]) -> Result<Self, NotAShape> {
        let lexemes = lexer::tokens(script)?;
        let lexemes = fold(lexemes)?;
        let (canonical, holes, call_lines) = Walk::over(&lexemes).run()?;
        Ok(Self { canonical, holes, call_lines })
    }

    /// The text that is hashed: one blank between tokens, `%n` for locals, `@n` for holes.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The operands in order of their first appearance, each once.
    pub fn holes(&self) -> &[Operand] {
        &self.holes
    }

    /// The line of every `redis.call` and `redis.pcall`, in the order of the text, as Lua's error texts name it.
    pub fn call_lines(&self) -> &[u32] {
        &self.call_lines
    }

    /// SHA-1 over [`Shape::canonical`]; what the table of recognised scripts is keyed by.
    pub fn sha1(&self) -> [u8; 20] {
        Sha1::digest(self.canonical.as_bytes()).into()
    }
}

#[cfg(test)]
mod shapes {
    use super::*;

    fn shape(script: &str) -> Shape {
        Shape::of(script.as_bytes()).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    fn canonical(script: &str) -> String {
        shape(script).canonical().to_owned()
    }

    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

    #[test]
    fn the_canonical_text_names_holes_locals_and_commands() {
        assert_eq!(
            canonical("local v = redis.call('get', KEYS[1]) if v == ARGV[1] then return 'x' end"),
            "local %0 = redis . call ( \"GET\" , @0 ) if %0 == @1 then return \"x\" end"
        );
    }

    #[test]
    fn spelling_does_not_change_a_shape() {
        let same = [
            "if redis.call(\"GET\",KEYS[1])==ARGV[1] then\n\treturn redis.call(\"DEL\",KEYS[1])\nend\nreturn 0\n",
            "--[[ release ]] if (redis.call([[get]], KEYS[1]) == ARGV[1]) then -- mine\r\nreturn redis.call('d\\101l', \
             KEYS[1]); end; return 0;",
            "if redis.call('get', KEYS[3]) == ARGV[7] then return redis.call('del', KEYS[3]) end return (0)",
            "if redis.call('get', 'lock:a') == 'me' then return redis.call('del', 'lock:a') end return 0",
            "local key = KEYS[1]; local id = ARGV[1] if redis.call('get', key) == id then return redis.call('del', \
             key) end return 0",
            "local call = redis.call if call('get', KEYS[1]) == ARGV[1] then return call('del', KEYS[1]) end return 0",
            "if server.call('get', KEYS[1]) == ARGV[1] then return server.call('del', KEYS[1]) end return ((0))",
        ];
        for script in same {
            assert_eq!(canonical(script), canonical(RELEASE), "{script}");
        }
    }

    #[test]
    fn what_changes_the_meaning_changes_the_shape() {
        let others = [
            RELEASE.replace("==", "~="),
            RELEASE.replace("return 0", "return 1"),
            RELEASE.replace("return 0", ""),
            RELEASE.replace("redis.call('del'", "redis.pcall('del'"),
            RELEASE.replace("return 0", "else return 0").replace("end else return 0", "else return 0 end"),
            RELEASE.replace("'del', KEYS[1]", "'del', KEYS[2]"),
            RELEASE.replace("ARGV[1]", "KEYS[1]"),
            RELEASE.replace("'del'", "'unlink'"),
            RELEASE.replace("redis", "Redis"),
            format!("local redis = x {RELEASE}"),
            format!("local KEYS = x {RELEASE}"),
            format!("local key = KEYS[1] key = KEYS[2] {}", RELEASE.replace("KEYS[1]", "key")),
            format!(
                "local a, key = KEYS[1], KEYS[2] local key = KEYS[1] {}",
                RELEASE.replace("KEYS[1]", "key")
            ),
            RELEASE
                .replace("return 0", "do local key = KEYS[1] end return key")
                .replace("'del', KEYS[1]", "'del', key"),
        ];
        for script in &others {
            assert_ne!(canonical(script), canonical(RELEASE), "{script}");
        }
    }

    #[test]
    fn the_names_of_locals_do_not_matter_but_their_scopes_do() {
        let inner = "local a = f() if x then local b = g() return b end return a";
        assert_eq!(canonical(inner), canonical(&inner.replace('b', "token")));
        assert_eq!(
            canonical(inner),
            canonical("local a = f() if x then local a = g() return a end return a")
        );
        assert_ne!(canonical(inner), canonical(&inner.replace("return b", "return a")));
        assert_ne!(
            canonical("local a = f() local a = a return a"),
            canonical("local a = f() local b = b return b")
        );
        assert_eq!(canonical("for i = 1, 2 do f(i) end i()"), canonical("for k = 1, 2 do f(k) end i()"));
        assert_eq!(canonical("local t = { t = 1 } return t.t"), canonical("local u = { t = 1 } return u.t"));
    }

    #[test]
    fn options_and_numbers_are_no_operands() {
        let set = "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
        assert_eq!(canonical(set), canonical(&set.replace("'NX', 'PX'", "'nx', 'px'")));
        assert_eq!(canonical(set), canonical(&set.replace("ARGV[2]", "30000")));
        assert_eq!(shape(&set.replace("ARGV[2]", "30000")).holes()[2], Operand::Literal(b"30000"[..].into()));
        assert_ne!(canonical(set), canonical(&set.replace("NX", "XX")));
        assert_ne!(canonical(set), canonical(&set.replace("ARGV[2]", "-1")));
        assert_ne!(canonical(set), canonical(&set.replace("ARGV[2]", "1e3")));
        assert_ne!(canonical(set), canonical(&set.replace("ARGV[2]", "tonumber(ARGV[2])")));
        assert_ne!(canonical("return 'OK'"), canonical("return 'NO'"));
    }

    #[test]
    fn a_call_is_on_the_line_of_its_parenthesis() {
        assert_eq!(
            shape("local a =\n redis.call('get', KEYS[1])\n\nredis.pcall('del',\n KEYS[1])").call_lines(),
            [2, 4]
        );
    }

    #[test]
    fn a_text_that_lua_refuses_is_never_mended() {
        let broken = [
            RELEASE.replace(" then return redis", "; then return redis"),
            RELEASE.replace("if redis.call('get', KEYS[1]) ==", "if; redis.call('get', KEYS[1]) =="),
            RELEASE.replace("return 0", "return; 0"),
            RELEASE.replace("return 0", ";; return 0"),
            format!(";{RELEASE}"),
            format!("if local key = KEYS[1] {}", &RELEASE[3..].replace("KEYS[1]", "key")),
            RELEASE.replace("return 0", "return (0, 0)"),
        ];
        for script in &broken {
            let other = Shape::of(script.as_bytes()).map(|shape| shape.canonical().to_owned());
            assert_ne!(other, Ok(canonical(RELEASE)), "{script}");
        }
        for script in ["redis.call\n('get')", "f(()", "if a then", "end", "f(]", "repeat until x"] {
            assert!(Shape::of(script.as_bytes()).is_err(), "{script}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(Shape::of("(".repeat(DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(Shape::of("do ".repeat(DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(Shape::of("local a ".repeat(LOCALS_MAX + 1).as_bytes()).is_err());
    }
}
