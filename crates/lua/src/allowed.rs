//! The allow-list: every function and constant that a script can reach, and what bounds the numbers that it takes.
//!
//! Owns    the list. The sandbox takes from Lua only the rows of [`Runs::C`]; the prelude and the other modules add the rest.
//! Rule    a row of [`Runs::C`] says why C is safe with every value. What would compute with a number of a script before it
//!         has compared it is not C.
//! Source  Lua 5.1.5: `lbaselib.c`, `lmathlib.c`, `lstrlib.c`, `ltablib.c`.

/// Where a function runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Runs {
    /// In Lua's C library.
    C,
    /// In `prelude.lua`, which may call C with arguments that it has checked.
    Prelude,
    /// In this crate.
    Rust,
}

/// Something that a script can reach.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name. With `()` behind it: the function that a call of it returns.
    pub name: &'static str,
    /// Where it runs.
    pub runs: Runs,
    /// Which arguments are numbers, and what bounds them. Empty: none.
    pub numbers: &'static str,
}

const fn row(runs: Runs, name: &'static str, numbers: &'static str) -> Row {
    Row { name, runs, numbers }
}

/// Doubles go into a function of `math.h`, and a double comes out.
const DOUBLES: &str = "doubles: any; nothing is converted";
/// A number without its fraction, modulo 2^32, as a C compiler for x86-64 makes an `int` of it.
const INT: &str = "an int of C, by the conversion of the prelude or of Rust";
/// A number without its fraction, as a C compiler for x86-64 makes a `long` of it. Rust compares it with lengths.
const LONG: &str = "a long of C, the least one for what does not fit";
/// A number modulo 2^32.
const WORD: &str = "words of 32 bits";

/// Everything that a script can reach.
pub const ALLOWED: &[Row] = {
    use Runs::{C, Prelude, Rust};
    &[
        row(C, "_VERSION", ""),
        row(C, "assert", ""),
        row(Rust, "collectgarbage", "step, pace: checked and ignored"),
        row(C, "error", "level: compared; it bounds a walk over the calls that there are"),
        row(C, "gcinfo", ""),
        row(Prelude, "getmetatable", ""),
        row(Prelude, "ipairs", ""),
        row(Prelude, "ipairs()", "index: any, a double"),
        row(Prelude, "load", ""),
        row(Prelude, "loadstring", ""),
        row(Prelude, "next", ""),
        row(Prelude, "pairs", ""),
        row(C, "pairs()", "key: any; a number is compared with the size of the array before it is an index"),
        row(Prelude, "pcall", ""),
        row(C, "rawequal", ""),
        row(Prelude, "rawget", "key: any, as in t[key]"),
        row(Prelude, "rawset", "key: any, as in t[key]"),
        row(Prelude, "select", INT),
        row(Prelude, "setmetatable", ""),
        row(Prelude, "tonumber", INT),
        row(C, "tostring", "value: any; it is printed into 32 bytes, of which the longest double takes 22"),
        row(C, "type", ""),
        row(Prelude, "unpack", INT),
        row(Prelude, "xpcall", ""),
        row(Rust, "bit.arshift", WORD),
        row(Rust, "bit.band", WORD),
        row(Rust, "bit.bnot", WORD),
        row(Rust, "bit.bor", WORD),
        row(Rust, "bit.bswap", WORD),
        row(Rust, "bit.bxor", WORD),
        row(Rust, "bit.lshift", WORD),
        row(Rust, "bit.rol", WORD),
        row(Rust, "bit.ror", WORD),
        row(Rust, "bit.rshift", WORD),
        row(Rust, "bit.tobit", WORD),
        row(Rust, "bit.tohex", WORD),
        row(Rust, "cjson._NAME", ""),
        row(Rust, "cjson._VERSION", ""),
        row(Rust, "cjson.decode", ""),
        row(Rust, "cjson.encode", ""),
        row(Rust, "cjson.null", ""),
        row(Rust, "cmsgpack._NAME", ""),
        row(Rust, "cmsgpack._VERSION", ""),
        row(Rust, "cmsgpack.pack", "values: any"),
        row(Rust, "cmsgpack.unpack", ""),
        row(Rust, "cmsgpack.unpack_limit", LONG),
        row(Rust, "cmsgpack.unpack_one", LONG),
        row(C, "coroutine.create", ""),
        row(Prelude, "coroutine.resume", ""),
        row(C, "coroutine.running", ""),
        row(C, "coroutine.status", ""),
        row(Prelude, "coroutine.wrap", ""),
        row(Prelude, "coroutine.wrap()", ""),
        row(C, "coroutine.yield", ""),
        row(C, "math.abs", DOUBLES),
        row(C, "math.acos", DOUBLES),
        row(C, "math.asin", DOUBLES),
        row(C, "math.atan", DOUBLES),
        row(C, "math.atan2", DOUBLES),
        row(C, "math.ceil", DOUBLES),
        row(C, "math.cos", DOUBLES),
        row(C, "math.cosh", DOUBLES),
        row(C, "math.deg", DOUBLES),
        row(C, "math.exp", DOUBLES),
        row(C, "math.floor", DOUBLES),
        row(C, "math.fmod", DOUBLES),
        row(
            Prelude,
            "math.frexp",
            "a double: finite where C gets it, because C may leave the exponent of others unset",
        ),
        row(C, "math.huge", ""),
        row(Prelude, "math.ldexp", INT),
        row(C, "math.log", DOUBLES),
        row(C, "math.log10", DOUBLES),
        row(C, "math.max", DOUBLES),
        row(C, "math.min", DOUBLES),
        row(C, "math.mod", DOUBLES),
        row(C, "math.modf", DOUBLES),
        row(C, "math.pi", ""),
        row(C, "math.pow", DOUBLES),
        row(C, "math.rad", DOUBLES),
        row(Rust, "math.random", INT),
        row(Rust, "math.randomseed", INT),
        row(C, "math.sin", DOUBLES),
        row(C, "math.sinh", DOUBLES),
        row(C, "math.sqrt", DOUBLES),
        row(C, "math.tan", DOUBLES),
        row(C, "math.tanh", DOUBLES),
        row(Rust, "redis.LOG_DEBUG", ""),
        row(Rust, "redis.LOG_NOTICE", ""),
        row(Rust, "redis.LOG_VERBOSE", ""),
        row(Rust, "redis.LOG_WARNING", ""),
        row(Rust, "redis.REDIS_VERSION", ""),
        row(Rust, "redis.REDIS_VERSION_NUM", ""),
        row(Rust, "redis.REPL_ALL", ""),
        row(Rust, "redis.REPL_AOF", ""),
        row(Rust, "redis.REPL_NONE", ""),
        row(Rust, "redis.REPL_REPLICA", ""),
        row(Rust, "redis.REPL_SLAVE", ""),
        row(Rust, "redis.acl_check_cmd", ""),
        row(Rust, "redis.breakpoint", ""),
        row(Rust, "redis.call", "words: any; a number becomes text"),
        row(Rust, "redis.debug", ""),
        row(Rust, "redis.error_reply", ""),
        row(Rust, "redis.log", "level: one of four"),
        row(Prelude, "redis.pcall", "words: any; a number becomes text"),
        row(Rust, "redis.register_function", ""),
        row(Rust, "redis.replicate_commands", ""),
        row(Rust, "redis.set_repl", "flags: one of four"),
        row(Rust, "redis.setresp", "protocol: 2 or 3"),
        row(Rust, "redis.sha1hex", ""),
        row(Rust, "redis.status_reply", ""),
        row(Rust, "string.byte", LONG),
        row(Rust, "string.char", INT),
        row(Rust, "string.find", LONG),
        row(
            C,
            "string.format",
            "values: any; the widest item, %99.99f of -1e308, is 410 characters in a buffer of 512",
        ),
        row(Prelude, "string.gfind", ""),
        row(Prelude, "string.gmatch", ""),
        row(Prelude, "string.gmatch()", ""),
        row(Prelude, "string.gsub", INT),
        row(C, "string.len", ""),
        row(C, "string.lower", ""),
        row(Rust, "string.match", LONG),
        row(Rust, "string.rep", INT),
        row(C, "string.reverse", ""),
        row(Rust, "string.sub", LONG),
        row(C, "string.upper", ""),
        row(Rust, "struct.pack", "values: any; sizes in the format: bounded"),
        row(Rust, "struct.size", "sizes in the format: bounded"),
        row(Rust, "struct.unpack", LONG),
        row(Prelude, "table.concat", INT),
        row(Prelude, "table.foreach", ""),
        row(Prelude, "table.foreachi", ""),
        row(Prelude, "table.getn", ""),
        row(Prelude, "table.insert", INT),
        row(Prelude, "table.maxn", ""),
        row(Prelude, "table.remove", INT),
        row(Prelude, "table.setn", ""),
        row(Prelude, "table.sort", ""),
    ]
};
