//! Library functions called with arbitrary arguments.
//!
//! Rule    addresses are never compared, and no library table is an argument: Redis' tables contain other functions.

use super::cases::Case;
use crate::support::rng::Rng;

/// Functions whose result does not depend on time or caller.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "",
        "assert collectgarbage error getmetatable ipairs load loadstring next pairs pcall rawequal rawget rawset select \
         setmetatable tonumber type unpack xpcall",
    ),
    ("coroutine.", "create resume running status wrap yield"),
    ("string.", "byte char find format gfind gmatch gsub len lower match rep reverse sub upper"),
    ("table.", "concat foreach foreachi getn insert maxn remove setn sort"),
    ("math.", "abs acos ceil cos deg exp floor fmod frexp ldexp log log10 max min mod modf pow rad sin sqrt"),
    ("bit.", "tobit bnot band bor bxor lshift rshift arshift rol ror bswap tohex"),
    (
        "redis.",
        "call pcall error_reply status_reply sha1hex log setresp set_repl replicate_commands breakpoint debug acl_check_cmd",
    ),
];

/// Their arguments, valid or not.
const ARGUMENTS: &[&str] = &[
    "",
    "nil",
    "1",
    "'x'",
    "{}",
    "true",
    "1, 2",
    "'x', 'y'",
    "'x', 1",
    "{}, 1",
    "{}, 'x'",
    "{}, {}",
    "'x', {}",
    "1, {}",
    "type",
    "type, 1",
    "type, type",
    "{1, 2}, 1",
    "{1}, nil",
    "redis",
    "redis, 'call'",
    "redis, 'call', 1",
    "nil, 1",
    "1, 'x'",
    "{2, 1}, type",
    "'%d', 'x'",
    "'%s'",
    "'[', '['",
    "'', 1, 2",
    "1/0",
    "'1e5'",
    "-1, 'x'",
    "setmetatable({}, {})",
    "setmetatable({}, {}), 1",
    "setmetatable({}, {}), 1, 2, 3",
    "coroutine.create(type)",
    "coroutine.create(function() error('in') end)",
    "function() return nil end",
    "function() error('in') end",
    "function() error({err = 'in'}) end",
    "function() return {} end",
    "function() redis.call('nosuch') end",
    "'return 1 +', '@name'",
    "'\\27Lua'",
    "'collect'",
    "'step'",
    "'get', 'key'",
    "'config', 'nosuch'",
];

/// Any function with any arguments, called in the ways that change an error's text.
pub(crate) fn misuse(rng: &mut Rng) -> Case {
    let (library, names) = rng.pick(FUNCTIONS);
    let names: Vec<&str> = names.split_whitespace().collect();
    let (name, mut arguments) = (rng.pick(&names), rng.pick(ARGUMENTS));
    // docs/scripts.md: functions of `table` differ on tables that cannot be changed.
    while library == "table." && arguments.starts_with("redis") {
        arguments = rng.pick(ARGUMENTS);
    }
    let called = format!("{library}{name}({arguments})");
    let code = match rng.below(4) {
        // Not returned at once: a tail call hides the line from functions written in Lua.
        0 => format!("return (({called}))"),
        1 => format!("local a, b, c = {called} return a, b, c"),
        2 => {
            let comma = if arguments.is_empty() { "" } else { ", " };
            format!("return pcall({library}{name}{comma}{arguments})")
        }
        _ => format!(
            "return xpcall(function() local a = {called} return a end, function(found) return found end)"
        ),
    };
    Case { code, args: Vec::new() }
}
