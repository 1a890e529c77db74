//! The reader of native scripts compared with Lua.
//!
//! Rule    a native program is bounded by the size of its text, Lua compiles the text, and both have equal effects. A
//!         statement that no native script has, put in front of the text, sends it to the interpreter.
//! Knows   the parts of scripts from `tests/protocol/scripts`; states and arguments follow from the text.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use redlatch_core::scripts::SCRIPT_BYTES_MAX;
use redlatch_core::scripts::native::Program;

use crate::protocol::scripts::draw::Draw;
use crate::protocol::scripts::law::Pair;
use crate::protocol::scripts::mutate;
use crate::support::shapes::shapes;

/// Compares the native run of a text, if it is native, with the run of another text by Lua.
pub(crate) fn compare(pair: &mut Pair, text: &[u8], other: &[u8]) {
    // Memory that grows faster than the text shows here.
    read(&text.repeat(SCRIPT_BYTES_MAX / text.len().max(1)));
    if read(text).is_some() {
        let seed = text.iter().fold(1_u64, |sum, byte| sum.wrapping_mul(31) ^ u64::from(*byte));
        pair.compare(text, other, TURNS, &mut Draw::of_seed(seed));
    }
}

/// Reads a text, and asserts that its program is no larger than the length of the text allows.
fn read(text: &[u8]) -> Option<Program> {
    let program = Program::read(text)?;
    let (size, bound) = (format!("{program:?}").len(), SIZE_PER_BYTE * text.len() + SIZE_FREE);
    assert!(size <= bound, "{size} characters tell what {} bytes mean", text.len());
    Some(program)
}

/// Runs of each native script.
const TURNS: usize = 3;
/// The largest ratio of the printed program to the script.
const SIZE_PER_BYTE: usize = 128;
/// A constant allowance for every script.
const SIZE_FREE: usize = 512;

/// Texts: mostly generated statements, or a client's script with mutated tokens; else words, or any bytes.
pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    let words = vec(select(mutate::WORDS), 0..60).prop_map(|words| words.join(" "));
    let texts = prop_oneof![8 => written(), 4 => exchanged(), 1 => words];
    prop_oneof![12 => texts.prop_map(String::into_bytes), 1 => vec(any::<u8>(), 0..60)].boxed()
}

/// Statements in the forms of native scripts, over three locals, on one line or several.
fn written() -> BoxedStrategy<String> {
    (vec(select(BLANKS), 8), block())
        .prop_map(|(blanks, block)| {
            let script = format!("local a = {{}} local b = KEYS[2] local c = ARGV[1] {block}");
            let words = script.split(' ').zip(blanks.iter().cycle());
            words.map(|(word, blank)| format!("{word}{blank}")).collect()
        })
        .boxed()
}

/// A client's script with tokens replaced and inserted.
fn exchanged() -> BoxedStrategy<String> {
    let scripts: Vec<Vec<String>> = shapes()
        .iter()
        .map(|(_, script)| mutate::tokens(script).into_iter().map(str::to_owned).collect())
        .collect();
    let piece = prop_oneof![select(mutate::WORDS).prop_map(str::to_owned), expression()];
    let change = (any::<Index>(), 0..2_usize, piece);
    (select(scripts), vec(change, 1..4))
        .prop_map(|(mut tokens, changes)| {
            for (at, taken, piece) in changes {
                let at = at.index(tokens.len());
                tokens.splice(at..at + taken, [piece]);
            }
            tokens.join(" ")
        })
        .boxed()
}

fn block() -> BoxedStrategy<String> {
    let local = select(LOCALS);
    let simple = prop_oneof![
        3 => (local.clone(), expression()).prop_map(|(local, value)| format!("{local} = {value}")),
        1 => (local.clone(), expression()).prop_map(|(local, value)| format!("local {local} = {value}")),
        3 => call(expression()),
        1 => (local, expression()).prop_map(|(local, value)| format!("table.insert({local}, {value})")),
        1 => expression().prop_map(|value| format!("if {value} then return {value} end")),
        1 => Just("local function f(a, b) return a end b = f(b, c)".to_owned()),
    ];
    let statement = simple.prop_recursive(3, 12, 3, |inner| {
        let inner = vec(inner, 0..3).prop_map(|statements| statements.join(" "));
        let each = (select(LISTS), inner.clone())
            .prop_map(|(list, inner)| format!("for a, c in ipairs({list}) do {inner} end"));
        let count = (select(LISTS), inner.clone())
            .prop_map(|(list, inner)| format!("for b = 1, #{list} do {inner} if b then break end end"));
        let choice = (expression(), inner.clone(), inner.clone())
            .prop_map(|(test, then, other)| format!("if {test} then {then} else {other} end"));
        prop_oneof![each, count, choice, inner.prop_map(|inner| format!("do {inner} end"))]
    });
    (vec(statement, 0..4), expression())
        .prop_map(|(statements, value)| format!("{} return {value}", statements.join(" ")))
        .boxed()
}

fn expression() -> BoxedStrategy<String> {
    let simple = select(VALUES).prop_map(str::to_owned);
    simple
        .prop_recursive(4, 16, 3, |inner| {
            let pair = (inner.clone(), select(OPERATORS), inner.clone());
            let function = (select(FUNCTIONS), vec(inner.clone(), 0..4));
            prop_oneof![
                3 => pair.prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
                1 => inner.clone().prop_map(|value| format!("({value})")),
                1 => (select(&["not ", "-", "#"]), inner.clone()).prop_map(|(sign, of)| format!("{sign}{of}")),
                1 => function.prop_map(|(function, args)| format!("{function}({})", args.join(", "))),
                1 => (select(LISTS), inner.clone()).prop_map(|(list, at)| format!("{list}[{at}]")),
                1 => vec(inner.clone(), 0..3).prop_map(|items| format!("{{{}}}", items.join(", "))),
                2 => call(inner),
            ]
        })
        .boxed()
}

fn call(argument: impl Strategy<Value = String> + Clone + 'static) -> BoxedStrategy<String> {
    let parts = (any::<bool>(), select(COMMANDS), prop_oneof![3 => Just("KEYS[1]"), 1 => Just("'k3'")]);
    (parts, vec(argument, 0..3), 0..8_u8)
        .prop_map(|((is_protected, command, key), args, end)| {
            let call = if is_protected { "pcall" } else { "call" };
            let args: String = args.iter().map(|arg| format!(", {arg}")).collect();
            let end = if end == 0 { ", unpack(ARGV)" } else { "" };
            format!("redis.{call}('{command}', {key}{args}{end})")
        })
        .boxed()
}

const BLANKS: &[&str] = &[" ", " ", " ", "  ", "\n", " --x\n", " --[[\n]] ", "\r\n", "\t"];
const LOCALS: &[&str] = &["a", "b", "c"];
const LISTS: &[&str] = &["KEYS", "ARGV", "a", "{}"];
const OPERATORS: &[&str] =
    &["==", "==", "~=", "<", "<=", ">", ">=", "and", "or", "..", "+", "-", "*", "/", "%", "^"];
const FUNCTIONS: &[&str] = &[
    "tonumber", "tostring", "type", "math.floor", "math.max", "math.min", "string.sub", "redis.error_reply",
    "redis.status_reply", "unpack",
];
const VALUES: &[&str] = &[
    "a", "b", "c", "KEYS[1]", "KEYS[9]", "ARGV[1]", "ARGV[2]", "ARGV", "nil", "true", "false", "0", "1",
    "-1", "2", "1.5", "1e3", "3.", ".5", "0x10", "1e308", "5e-324", "''", "'1'", "\" 7 \"", "'mine'", "'PX'",
    "'NX'", "'a\\0b\\n'", "[[x]]", "[==[\n]]]==]", "'0x1p4'", "'inf'", "'nan'", "#KEYS",
];
const COMMANDS: &[&str] = &[
    "get", "SET", "del", "exists", "incrby", "pexpire", "pttl", "ttl", "hset", "hget", "hgetall", "hincrby",
    "lpush", "lrange", "rpop", "zadd", "zscore", "zrange", "sadd", "smembers", "mget", "mset", "publish",
    "select", "time", "type", "strlen", "append", "getex", "nope",
];
