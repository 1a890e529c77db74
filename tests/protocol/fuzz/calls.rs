//! Calls of everything that a script can reach, with numbers at the edges: none may break memory or the interpreter.
//!
//! Rule    each byte of an input is a choice. What a call answers does not matter here; a sanitizer around Lua's C looks on.
//! Knows   the names from the interpreter's own allow-list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::collection::vec;
use proptest::prelude::*;
use redlatch_core::scripts::Inputs;
use redlatch_core::scripts::interpreter::{Commands, Host, Interpreter, Level, Source, Verdict, Watchdog};
use redlatch_lua::ALLOWED;
use redlatch_proto::resp::{Protocol, Reply};

pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    vec(any::<u8>(), 0..400).boxed()
}

/// An interpreter for [`check`], which leaves nothing in it.
pub(crate) fn interpreter() -> Box<dyn Interpreter> {
    let host = Host { version: [7, 0, 15], knows: |_| true };
    redlatch_lua::interpreter(MEMORY_BYTES_MAX, host).expect("the sandbox fits")
}

/// Runs the calls that `bytes` choose; returns how many began before the script was over.
pub(crate) fn check(interpreter: &mut dyn Interpreter, bytes: &[u8]) -> usize {
    let text = script(bytes);
    println!("{text}");
    let mut server = Server { ticks: 0 };
    let mut out = Vec::new();
    for text in [&*text, "return {('x'):rep(3), string.format('%d', 7), #{unpack({1, 2, 3})}}"] {
        out.clear();
        let inputs = Inputs::new(&[b"k1", b"2147483648"], &[b"-1", b""]);
        let patience = Arc::new(Patience(AtomicUsize::new(0)));
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let source = Source { name: text, text: text.as_bytes() };
        // An error is as good as a reply.
        if let Err(line) = interpreter.run(source, inputs, &mut server, patience, &mut reply) {
            println!("-- {}", line.escape_ascii());
        }
    }
    assert_eq!(String::from_utf8_lossy(&out), "*3\r\n$3\r\nxxx\r\n$1\r\n7\r\n:3\r\n", "after {text}");
    server.ticks
}

const MEMORY_BYTES_MAX: usize = 8 << 20;

/// A server that answers each command with its words. `TICK` counts a call.
struct Server {
    ticks: usize,
}

impl Commands for Server {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Verdict {
        let mut reply = Reply::new(reply, protocol);
        match words {
            [b"TICK"] => {
                self.ticks += 1;
                reply.null();
            }
            words => reply.bulks(words),
        }
        Verdict::GoOn
    }

    fn log(&mut self, _: Level, _: &[u8]) {}
}

/// Ends a script that does too much.
struct Patience(AtomicUsize);

const POLLS_MAX: usize = 300;

impl Watchdog for Patience {
    fn poll(&self) -> Verdict {
        if self.0.fetch_add(1, Relaxed) < POLLS_MAX { Verdict::GoOn } else { Verdict::Kill }
    }
}

/// What is left of the choices.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.0.split_off_first().map_or(0, |byte| usize::from(*byte) % end)
    }

    fn of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }
}

fn script(bytes: &[u8]) -> String {
    let mut choices = Choices(bytes);
    let mut text = START.to_owned();
    while !choices.0.is_empty() {
        text.push_str(&format!("tick() {}\n", statement(&mut choices)));
    }
    text.push_str("return r");
    text
}

/// `t` and `sparse` have holes, `m` is a metatable, `r` a result that later calls may get.
const START: &str = "\
local r, n, m, t, sparse = nil, 0, {}, {1, nil, 3, nil, nil, 6}, {1, 1, nil, 1}
for i = 0, 9 do sparse[5 * 2^i] = i end
local o = setmetatable({}, m)
local function f(...) n = n + 1 if n < 50 then return ... end end
local function y(...) return coroutine.yield(...) end
local function keep(_, first, second) if second == nil then r = first else r = second end end
local function tick() pcall(redis.call, 'TICK') end
";

fn statement(choices: &mut Choices<'_>) -> String {
    let (function, args) = (function(choices), args(choices));
    match choices.below(12) {
        0 => format!("keep(coroutine.resume(coroutine.create(function() return ({function})({args}) end)))"),
        1 => format!("keep(pcall(coroutine.wrap(function(...) return ({function})(y(...)) end), {args}))"),
        // A handler that fails is called again, until there is no stack: that takes long.
        2 => {
            let handler = if choices.below(32) == 0 { &function } else { "f" };
            format!("keep(xpcall(function() return ({function})({args}) end, {handler}))")
        }
        3 => format!("m.{} = {}", choices.of(EVENTS), value(choices)),
        4 => format!(
            "keep(pcall(function() return {} {} {} end))",
            value(choices),
            choices.of(OPERATORS),
            value(choices)
        ),
        5 => format!(
            "keep(pcall(function() local list = {} list[{}] = {} return list end))",
            choices.of(TABLES),
            value(choices),
            value(choices)
        ),
        6 => format!(
            "keep(pcall(function() for i = {}, {}, {} do keep(nil, i) if f(1) == nil then break end end end))",
            value(choices),
            value(choices),
            value(choices)
        ),
        7 => format!("keep(pcall(function(a, b, ...) return ({function})(b, a, ...) end, {args}))"),
        _ => format!("keep(pcall({function}, {args}))"),
    }
}

/// Something to call: mostly a row of the allow-list.
fn function(choices: &mut Choices<'_>) -> String {
    // Two bytes: there are more rows than one byte chooses evenly.
    let at = choices.below(256) * 256 + choices.below(256);
    match ALLOWED[at % ALLOWED.len()].name {
        "ipairs()" => "ipairs({})".to_owned(),
        "pairs()" => "pairs({})".to_owned(),
        "string.gmatch()" => "string.gmatch('a1b2', '%a(%d)')".to_owned(),
        "coroutine.wrap()" => "coroutine.wrap(y)".to_owned(),
        name => name.to_owned(),
    }
}

fn args(choices: &mut Choices<'_>) -> String {
    let count = choices.below(5);
    let mut args: Vec<String> = (0..count).map(|_| value(choices)).collect();
    if choices.below(24) == 0 {
        args.push(format!("unpack(t, 1, {})", choices.of(&["20", "250", "4000", "7940", "7950"])));
    }
    if args.is_empty() { "nil".to_owned() } else { args.join(", ") }
}

fn value(choices: &mut Choices<'_>) -> String {
    match choices.below(8) {
        0..=2 => choices.of(NUMBERS).to_owned(),
        3 | 4 => choices.of(TEXTS).to_owned(),
        5 | 6 => choices.of(TABLES).to_owned(),
        _ => match choices.below(4) {
            0 => function(choices),
            _ => choices.of(OTHERS).to_owned(),
        },
    }
}

/// The edges of `int`, `size_t`, the stack and `double`.
const NUMBERS: &[&str] = &[
    "0", "-0", "1", "-1", "2", "3", "0.5", "-0.5", "10", "16", "36", "37", "255", "256", "-128", "32767",
    "65536", "7949", "7950", "7951", "8000", "2^20", "2147483646", "2147483647", "2147483648", "2147483649",
    "-2147483646", "-2147483647", "-2147483648", "-2147483649", "3e9", "-3e9", "4294967295", "4294967296",
    "4294967297", "-4294967297", "2^53", "-2^53", "2^53 + 1", "2^62", "2^63 - 1024", "2^63", "-2^63",
    "-2^63 - 2048", "2^64", "1e15", "1e100", "1e308", "-1e308", "5e-324", "1/0", "-1/0", "0/0", "-(0/0)",
];
const TEXTS: &[&str] = &[
    "''", "'x'", "'abc'", "'2147483647'", "'2147483648'", "'-2147483649'", "'4294967297'",
    "'9223372036854775808'", "'1e300'", "'nan'", "'-inf'", "'0x7fffffff'", "'0xffffffffffffffffff'", "' 1 '",
    "'\\0'", "'1\\0'", "'zz'", "'#'", "'#x'", "'collect'", "'k'", "'kv'", "('x'):rep(99)", "('x'):rep(100)",
    "('x'):rep(5000)", "('%'):rep(33)", "('9'):rep(400)", "'%d'", "'%s %s'", "'%5.3q'", "'%q'", "'%99.99f'",
    "'%-+ #0d'", "'%-+ #0-d'", "'%99.99s'", "'%.99d'", "'%99c'", "'%x%X%o%u'", "'%e%g%G'", "'%100d'", "'%'",
    "'(.)'", "'()'", "'%1'", "'(%1)'", "'%f[%w]'", "'%b()'", "'.-'", "'[^]'", "'^a*'", "('(x'):rep(33)",
    "'>i4'", "'c0'", "'!8i16'", "'i33'", "'c4294967297'", "'\\27Lua'", "'\\221\\255\\255\\255\\255'",
    "'[[[1]]'", "'{\"a\":1}'", "'return 1'", "'return ' .. ('('):rep(150)", "'local a <' .. ('{'):rep(199)",
    "'return {' .. ('1,'):rep(600) .. '}'", "'return function(...) return ... end'",
];
const TABLES: &[&str] = &[
    "t",
    "t",
    "sparse",
    "o",
    "m",
    "{}",
    "{1, 2, 3}",
    "{3, 'x', {}, nil, 0/0}",
    "{[0] = 1, [-2147483648] = 2}",
    "{[2147483647] = 1, [2^53] = 2, [1/0] = 3}",
    "setmetatable({}, m)",
    "string",
    "_G",
    "KEYS",
    "redis",
    "getmetatable('')",
    "setmetatable({}, {__mode = 'kv'})",
];
const OTHERS: &[&str] = &[
    "nil", "nil", "true", "false", "r", "r", "f", "y", "cjson.null", "coroutine.create(f)",
    "coroutine.create(y)", "coroutine.wrap(y)", "coroutine.running()", "pairs", "error", "#sparse", "#t",
];
const EVENTS: &[&str] = &[
    "__index", "__newindex", "__call", "__add", "__unm", "__concat", "__eq", "__lt", "__le", "__len",
    "__mode", "__gc", "__metatable", "__tostring",
];
const OPERATORS: &[&str] =
    &["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"];
