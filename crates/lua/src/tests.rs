//! The interpreter on its own: hostile scripts end, and leave it as it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redlatch_core::scripts::interpreter::{Level, Verdict};
use redlatch_proto::resp::Protocol;

use super::*;

mod allowed;
mod calls;
mod endings;
mod libraries;
mod weaknesses;

/// A watchdog that never ends a script.
#[derive(Clone, Copy, Debug, Default)]
struct Asleep;

impl Watchdog for Asleep {
    fn poll(&self) -> Verdict {
        Verdict::GoOn
    }
}

/// A server that answers every command with its words, and counts them.
#[derive(Default)]
struct Echo {
    calls: u64,
    logged: Vec<(Level, String)>,
}

impl Commands for Echo {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Verdict {
        self.calls += 1;
        let mut reply = Reply::new(reply, protocol);
        match words {
            [b"FAIL", ..] => reply.error("MY failure"),
            [b"BIG", ..] => reply.bulk(&vec![b'x'; 2 << 20]),
            [b"END", ..] => return Verdict::Kill,
            _ => reply.bulks(words),
        }
        Verdict::GoOn
    }

    fn log(&mut self, level: Level, text: &[u8]) {
        self.logged.push((level, String::from_utf8_lossy(text).into_owned()));
    }
}

/// A watchdog that ends the script after so many polls.
#[derive(Debug)]
struct After {
    polls: AtomicU64,
    max: u64,
}

impl After {
    fn polls(max: u64) -> Arc<Self> {
        Arc::new(Self { polls: AtomicU64::new(0), max })
    }
}

impl Watchdog for After {
    fn poll(&self) -> Verdict {
        if self.polls.fetch_add(1, Relaxed) < self.max { Verdict::GoOn } else { Verdict::Kill }
    }
}

/// Bytes that a script may hold in most tests.
const MEMORY_BYTES_MAX: usize = 256 << 20;
const HOST: Host = Host { version: [7, 0, 15], knows: |_| true };

fn interpreter(memory_max: usize) -> LuaInterpreter {
    LuaInterpreter::build(memory_max, HOST).unwrap()
}

fn source(text: &str) -> Source<'_> {
    Source { name: text, text: text.as_bytes() }
}

fn run_watched(
    interpreter: &mut LuaInterpreter,
    text: &str,
    watchdog: Arc<dyn Watchdog>,
) -> Result<String, String> {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let (keys, args): (&[&[u8]], &[&[u8]]) = (&[b"k1"], &[b"a1", b"a2"]);
    let result =
        interpreter.run(source(text), Inputs::new(keys, args), &mut Echo::default(), watchdog, &mut reply);
    match result {
        Ok(()) => Ok(String::from_utf8_lossy(&out).into_owned()),
        Err(line) => Err(String::from_utf8_lossy(&line).into_owned()),
    }
}

fn run(interpreter: &mut LuaInterpreter, text: &str) -> Result<String, String> {
    run_watched(interpreter, text, Arc::new(Asleep))
}

#[test]
fn no_script_survives_a_kill() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "while true do end",
        "repeat until false",
        "local function f() return f() end f()",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error, 'x') end",
        "pcall(pcall, function() while true do end end) while true do end",
        "xpcall(function() while true do end end, function() while true do end end) while true do end",
        "while true do xpcall(error, function() while true do end end) end",
        "while true do local ok = coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        "local f = coroutine.wrap(function() while true do coroutine.yield() end end) while true do f() end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) \
         while true do pcall(function() return t[1] end) end",
        "local t = setmetatable({}, {__tostring = function() while true do end end}) while true do pcall(tostring, t) end",
        "while true do pcall(string.gsub, 'x', 'x', function() while true do end end) end",
        "while true do pcall(table.sort, {3, 2, 1}, function() while true do end end) end",
        "while true do pcall(load, function() return ' ' end) end",
        "load(gcinfo)",
        "load(collectgarbage)",
        "while true do pcall(string.find, ('a'):rep(40), ('a*'):rep(30) .. 'b') end",
        "while true do for _ in ('aaaa'):gmatch('a') do end end",
        "while true do pcall(redis.call, 'PING') end",
        "while true do pcall(redis.pcall, 'FAIL') end",
        "while true do collectgarbage() end",
        "local t = {} for i = 1, 3000 do t[i] = i % 7 end while true do table.sort(t) end",
        "while true do pcall(loadstring, 'return 1') end",
        "local s = ('x'):rep(1000) while true do s:upper() end",
    ] {
        let error = run_watched(&mut interpreter, text, After::polls(300)).unwrap_err();
        assert!(error.contains("Script killed by user with SCRIPT KILL."), "{text}: {error}");
    }
    assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"));
}

#[test]
fn no_script_holds_more_memory_than_it_may() {
    let limit = 10 << 20;
    let mut interpreter = interpreter(limit);
    let before = interpreter.memory();
    for text in [
        "return #('x'):rep(2^28)",
        "return #('x'):rep(2^30)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t, x = {}, ('x'):rep(20) while true do t[#t + 1] = #t .. x end",
        "local s = ('x'):rep(2^20) local t = {} for i = 1, 100 do t[i] = s end return #table.concat(t)",
        "local s = ('x'):rep(2^20) return #s:gsub('x', ('y'):rep(1000))",
        "local s = ('x'):rep(2^22) local t = s:sub(2) return #t + #s:sub(3)",
        "local t, s = {}, ('x'):rep(1020) for i = 1, 100000 do t[i] = (s .. i):sub(2) end",
        "local s = ('x'):rep(2^20) return #s:gsub('x', function() return ('y'):rep(1000) end)",
        "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        "local t = {} while true do t[#t + 1] = redis.call('BIG') .. #t end",
        "while true do pcall(function() local s = 'x' while true do s = s .. s end end) end",
        "while true do xpcall(function() return ('x'):rep(2^30) end, function(e) return e end) end",
        "while true do coroutine.resume(coroutine.create(function() local s = 'x' while true do s = s .. s end end)) end",
        "while true do pcall(coroutine.wrap(function() local s = 'x' while true do s = s .. s end end)) end",
        "local s = ('x '):rep(2^22) local t = {} for w in s:gmatch('x') do t[#t + 1] = {w} end",
        "local s = ('x'):rep(2^20) return (s:match(('(.'):rep(30) .. '.*' .. (')'):rep(30)))",
        "local s = ('x'):rep(2^20) return (s:find(('(.'):rep(30) .. '.*' .. (')'):rep(30)))",
        "local s = ('x'):rep(2^20) for w in s:gmatch(('(.'):rep(30) .. '.*' .. (')'):rep(30)) do return w end",
        "return loadstring('return {' .. ('{},'):rep(700000) .. '}')",
        "local t, y = {}, ('y'):rep(25) for i = 1, 1000000 do t[i] = i .. y end return t",
    ] {
        let error = run_watched(&mut interpreter, text, After::polls(2_000_000)).unwrap_err();
        assert!(error.contains("more memory than its limit of 10485760 bytes"), "{text}: {error}");
        let memory = interpreter.memory();
        assert!(memory < before + (6 << 20), "{text}: {memory} bytes stay");
    }
    assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"));
}

#[test]
fn what_is_collected_does_not_count() {
    let mut interpreter = interpreter(32 << 20);
    let text = "local n = 0 for i = 1, 400 do n = n + #('x'):rep(2^20) end return n";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(":419430400\r\n"));
    let text = "local n = 0 for i = 1, 200000 do local t = {i, {i}} n = n + #t end return n";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(":400000\r\n"));
}

#[test]
fn a_collection_frees_all_that_nobody_reaches_wherever_lua_was_with_its_own() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    // More and more garbage, so that Lua has begun to collect by itself, has ended, or has not; small and large states in
    // turn, for which it does so in another way.
    let text = "local weak, held = setmetatable({}, {__mode = 'v'}), {} \
                for i = 1, 300 do \
                    if i % 100 == 50 then for j = 1, 60000 do held[j] = {} end elseif i % 100 == 0 then held = {} end \
                    weak[1], weak[2] = {}, coroutine.create(function() end) \
                    for j = 1, i * 3 do local t = {j} end \
                    local kept = weak[1] \
                    for j = 1, i do local t = {j} end \
                    kept = nil \
                    collectgarbage() \
                    if weak[1] or weak[2] then return i end \
                end return 'none is left'";
    for _ in 0..3 {
        assert_eq!(run(&mut interpreter, text).as_deref(), Ok("$12\r\nnone is left\r\n"));
    }
}

#[test]
fn one_long_call_polls_the_watchdog() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "return ('a'):rep(30):find(('a*'):rep(30) .. 'b')",
        "return ('a'):rep(1000000):gsub('.-b', '')",
        "return ('a'):rep(1000000):gsub('a', {})",
        "return ('a'):rep(1000000):gsub('', {})",
        "local t = {} for i = 1, 20000 do t[i] = i % 2 end table.sort(t)",
        "local t = {} for i = 1, 20000 do t[i] = i % 2 end pcall(table.sort, t, rawequal)",
    ] {
        let watchdog = After::polls(40);
        let error = run_watched(&mut interpreter, text, watchdog).unwrap_err();
        assert!(error.contains("Script killed"), "{text}: {error}");
    }
}

#[test]
fn the_larger_the_state_the_oftener_the_watchdog_is_asked() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let mut polls = |text: &str| {
        let watchdog = After::polls(u64::MAX);
        run_watched(&mut interpreter, text, Arc::<After>::clone(&watchdog)).unwrap();
        watchdog.polls.load(Relaxed)
    };
    let small = polls("local s = ('x'):rep(2^10) for i = 1, 10000 do local b = s < s end");
    let large = polls("local s = ('x'):rep(2^26) for i = 1, 10000 do local b = #s end");
    assert!(large > 4 * small, "{small} and {large}");
    let one = polls(
        "local s = ('x'):rep(2^26) coroutine.wrap(function() for i = 1, 10000 do local b = #s end end)()",
    );
    assert!(one > 4 * small, "{small} and {one}");
}

#[test]
fn nothing_of_a_script_stays() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "KEYS.x = 1 ARGV.y = 2 return 1",
        "return pcall(function() leaked = 1 end) and 1 or 1",
        "for _, t in pairs({_G, redis, string, table, math, coroutine, getmetatable('')}) do pcall(rawset, t, 'leaked', 1) \
         pcall(table.insert, t, 1) pcall(setmetatable, t, {}) pcall(function() t.leaked = 1 end) \
         for k, v in pairs(t) do pcall(rawset, t, k, 1) end end return 1",
        "local n, t, k = pairs(redis) pcall(rawset, t, 'leaked', 1) return 1",
        "local m = getmetatable(_G) pcall(rawset, m, '__index', nil) return 1",
        "local m = getmetatable('') pcall(rawset, m, '__index', nil) return 1",
        "table.foreach(_G, function(k, v) pcall(rawset, v, 'leaked', 1) end) return 1",
    ] {
        assert_eq!(run(&mut interpreter, text).as_deref(), Ok(":1\r\n"), "{text}");
    }
    let text = "for name, t in pairs(_G) do if type(t) == 'table' and name ~= 'KEYS' and name ~= 'ARGV' and #t > 0 then \
                return name end end return {rawget(redis, 'leaked'), rawget(string, 'leaked'), rawget(_G, 'leaked'), \
                #KEYS + #ARGV, ('x'):rep(2), KEYS.x}";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok("*0\r\n"));
    let text = "return {#KEYS + #ARGV, ('x'):rep(2), tostring(KEYS.x), tostring(ARGV.y)}";
    let expected = "*4\r\n:3\r\n$2\r\nxx\r\n$3\r\nnil\r\n$3\r\nnil\r\n";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(expected));
}

#[test]
fn deep_things_end_in_an_error() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for (text, expected) in [
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("local function f() return pcall(f) end return f()", ""),
        ("local function f() return ('x'):gsub('x', f) end return f()", "stack overflow"),
        ("local function f() return 1, coroutine.wrap(f)() end return f()", "C stack overflow"),
        ("local function f() ('x'):rep() end return tostring(xpcall(f, f))", "false"),
        (
            "local function f() ('x'):gsub('x', f) ('x'):gsub('(', f) end return tostring(xpcall(f, f))",
            "false",
        ),
        ("local function f() ('x'):find('(') end return tostring(xpcall(f, f))", "false"),
        ("return loadstring(('('):rep(1000))()", "attempt to call a nil value"),
        ("local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x", "loop in gettable"),
        ("return ('x'):rep(40):find(('(x'):rep(40))", "too many captures"),
        ("return ('x'):rep(1000):find(('x?'):rep(1000) .. 'y')", "pattern too complex"),
    ] {
        let result = run(&mut interpreter, text);
        let ends_well = match &result {
            Ok(reply) => reply.contains(expected),
            Err(error) => error.contains(expected),
        };
        assert!(ends_well, "{text}: {result:?}");
    }
}

#[test]
fn a_call_takes_as_many_words_as_lua_can_unpack() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for n in 0..COMPILED_MAX + 10 {
        run(&mut interpreter, &format!("return {n}")).unwrap();
    }
    let text = "local t = {} for i = 1, 7800 do t[i] = 'x' .. i end return #redis.call('ECHO', unpack(t))";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(":7801\r\n"));
}

#[test]
fn what_a_script_logs_arrives_in_order() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let (mut out, mut echo) = (Vec::new(), Echo::default());
    let text = "redis.log(redis.LOG_WARNING, 'a', 1) redis.call('PING') redis.log(redis.LOG_DEBUG, 'b')";
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    interpreter.run(source(text), Inputs::new(&[], &[]), &mut echo, Arc::new(Asleep), &mut reply).unwrap();
    assert_eq!(echo.logged, [(Level::Warning, "a 1".to_owned()), (Level::Debug, "b".to_owned())]);
    assert_eq!(echo.calls, 1);
}
