//! What functions keep from call to call is as it was after a call that has had to leave.

use super::*;
use crate::scripts::lua::{Stop, Verdict};

/// A server where scripts are tried out.
#[derive(Default)]
struct TriedOut {
    has_left: bool,
}

impl Commands for TriedOut {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) {
        Echo::default().command(words, protocol, reply);
    }

    fn is_trial(&self) -> bool {
        true
    }

    fn has_left(&mut self) {
        self.has_left = true;
    }

    fn log(&mut self, _: Level, _: &[u8]) {}
}

/// Has a script leave after its first polls.
struct Impatient(AtomicU64);

impl Watchdog for Impatient {
    fn poll(&self) -> Verdict {
        if self.0.fetch_add(1, Relaxed) < 20 { Verdict::GoOn } else { Verdict::Leave }
    }
}

fn call(interpreter: &mut Interpreter, library: u32, name: &str, word: &str) -> Result<String, bool> {
    let (mut out, mut server) = (Vec::new(), TriedOut::default());
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let args: &[&[u8]] = &[word.as_bytes()];
    let (inputs, watchdog) = (Inputs::new(&[], args), Arc::new(Impatient(AtomicU64::new(0))));
    let result = interpreter.call(library, name, inputs, &mut server, watchdog, &mut reply);
    let is_left = |line: &Failure| line.starts_with(Stop::Left.to_string().as_bytes());
    assert_eq!(server.has_left, result.as_ref().is_err_and(is_left));
    result.map(|()| String::from_utf8(out).unwrap()).map_err(|_| server.has_left)
}

const KEEPS: &str = "local redis, count, seen, none = redis, 0, { list = {}, a = 1 }, nil
local function note(n)
    count = count + 1
    table.insert(seen.list, n)
    seen[n] = {}
    seen.a = nil
    none = { n }
    if n % 7 == 0 then
        setmetatable(seen, { __index = error })
        seen = { list = seen.list }
    end
end
redis.register_function('notes', function(keys, args)
    for n = 1, tonumber(args[1]) do note(n) end
    return count
end)
redis.register_function('tells', function()
    local fields = 0
    for name in pairs(seen) do fields = fields + 1 end
    return cjson.encode({ count, #seen.list, fields, type(none), type(seen.a), getmetatable(seen) == nil })
end)";

#[test]
fn a_call_that_has_to_leave_changes_nothing() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let library = interpreter.load(KEEPS.as_bytes(), &mut Echo::default()).unwrap().id;
    let tells = |interpreter: &mut Interpreter| call(interpreter, library, "tells", "").unwrap();
    let first = tells(&mut interpreter);
    assert!(first.contains("[0,0,2,\"nil\",\"number\",true]"), "{first}");
    assert_eq!(call(&mut interpreter, library, "notes", "1000000"), Err(true));
    assert_eq!(tells(&mut interpreter), first);
    assert_eq!(call(&mut interpreter, library, "notes", "3").as_deref(), Ok(":3\r\n"));
    let second = tells(&mut interpreter);
    assert!(second.contains("[3,3,4,\"table\",\"nil\",true]"), "{second}");
    for _ in 0..3 {
        assert_eq!(call(&mut interpreter, library, "notes", "1000000"), Err(true));
        assert_eq!(tells(&mut interpreter), second);
    }
}

/// A function whose library keeps a value, which `sets` it to first, and how often it has been called.
fn keeping(value: &str) -> String {
    format!(
        "local kept, calls
        redis.register_function('sets', function() kept, calls = {value}, 0 end)
        redis.register_function('calls', function() calls = calls + 1 return kept and calls end)
        redis.register_function('echoes', function(keys, args) return args[1] end)"
    )
}

/// Calls a function where nothing is tried out.
fn call_elsewhere(interpreter: &mut Interpreter, library: u32, name: &str) -> String {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let inputs = Inputs::new(&[], &[]);
    interpreter.call(library, name, inputs, &mut Echo::default(), Arc::new(Asleep), &mut reply).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn what_cannot_be_put_back_is_not_touched() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for value in [
        "coroutine.create(function() coroutine.yield() end)",
        "coroutine.wrap(function() coroutine.yield() end)",
        "string.gmatch('abc', '.')",
        "setmetatable({}, {})",
        "{ { { setmetatable({}, { __index = {} }) } } }",
        "(function() local many = {} for n = 1, 65 do many[n] = n end return many end)()",
    ] {
        let library = interpreter.load(keeping(value).as_bytes(), &mut Echo::default()).unwrap().id;
        call_elsewhere(&mut interpreter, library, "sets");
        for _ in 0..2 {
            assert_eq!(call(&mut interpreter, library, "calls", ""), Err(true), "{value}");
            assert_eq!(call(&mut interpreter, library, "echoes", "x").as_deref(), Ok("$1\r\nx\r\n"));
        }
        assert_eq!(call_elsewhere(&mut interpreter, library, "calls"), ":1\r\n", "{value}");
    }
}

#[test]
fn what_every_library_finds_around_it_is_no_state() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for value in [
        "_G",
        "{ redis, server, redis.log, redis.call, string, string.rep, math, table.insert, pairs, next, error, type }",
        "{ cjson, cjson.encode, cjson.null, bit, struct.pack, cmsgpack, coroutine.wrap }",
    ] {
        let library = interpreter.load(keeping(value).as_bytes(), &mut Echo::default()).unwrap().id;
        call_elsewhere(&mut interpreter, library, "sets");
        for n in 1..=3 {
            assert_eq!(call(&mut interpreter, library, "calls", ""), Ok(format!(":{n}\r\n")), "{value}");
        }
    }
}
