//! The end of a script, wherever it comes: nothing of the script runs after that, and nothing of it stays.

use std::sync::atomic::AtomicBool;

use super::*;

/// Ends a script after so many polls, and says that it has.
struct Ending {
    polls: AtomicU64,
    is_over: Arc<AtomicBool>,
}

impl Watchdog for Ending {
    fn poll(&self) -> Verdict {
        if self.polls.fetch_sub(1, Relaxed) > 1 {
            return Verdict::GoOn;
        }
        self.polls.store(1, Relaxed);
        self.is_over.store(true, Relaxed);
        Verdict::Kill
    }
}

/// A server that nobody calls any more once the script is over.
struct Quiet(Arc<AtomicBool>);

impl Commands for Quiet {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Verdict {
        assert!(!self.0.load(Relaxed), "a script is over, and goes on");
        let mut reply = Reply::new(reply, protocol);
        if words == [b"FAIL"] {
            reply.error("MY failure")
        } else {
            reply.bulks(words)
        }
        Verdict::GoOn
    }

    fn log(&mut self, _: Level, _: &[u8]) {}
}

/// What a script does, and what it does that in: each takes some of the budget, catches errors, or raises some.
const STATEMENTS: &[&str] = &[
    "for i = 1, 3000 do end",
    "redis.call('PING')",
    "redis.pcall('FAIL')",
    "redis.call('FAIL')",
    "error('a text')",
    "error({err = 'a table'})",
    "error()",
    "string.rep()",
    "local s = ('a'):rep(30) s:find(('a*'):rep(4) .. 'b')",
    "local t = {} for i = 1, 600 do t[i] = i % 7 end table.sort(t)",
    "collectgarbage()",
    "cjson.encode({1, {2}}) cmsgpack.pack({1})",
    "struct.unpack('>i2s', struct.pack('>i2s', 7, 'x'))",
];
const AROUND: &[&str] = &[
    "pcall(function() @ end)",
    "xpcall(function() @ end, function() redis.call('PING') end)",
    "xpcall(function() @ end, function(e) redis.call('PING') error(e) end)",
    "xpcall(function() @ end, coroutine.wrap(function() redis.call('PING') end))",
    "coroutine.wrap(function() @ end)()",
    "coroutine.resume(coroutine.create(function() @ end))",
    "local f = coroutine.wrap(function() coroutine.yield() @ end) f() f()",
    "('aaa'):gsub('a', function() @ end)",
    "for _ in ('aaa'):gmatch('a') do @ end",
    "table.sort({3, 1, 2}, function(a, b) @ return a < b end)",
    "load(function() @ end)",
    "local f = loadstring('local f = ... f()') f(function() @ end)",
    "local _ = setmetatable({}, {__index = function() @ end}).x",
    "local t = setmetatable({}, {__lt = function() @ end}) local _ = t < t",
    "for _ in function() @ end do end",
    "table.foreach({1, 2}, function() @ end)",
];

/// A script that is made of these by chance, and has no end.
fn made_up(mut chance: impl FnMut(usize) -> usize) -> String {
    let mut text = STATEMENTS[chance(STATEMENTS.len())].to_owned();
    for _ in 0..chance(6) {
        text = AROUND[chance(AROUND.len())].replace('@', &text);
        let beside = STATEMENTS[chance(STATEMENTS.len())];
        match chance(4) {
            0 => text = format!("{beside} {text}"),
            1 => text = format!("do {text} end {beside}"),
            _ => {}
        }
    }
    format!("while true do pcall(function() {text} end) end")
}

#[test]
fn nothing_of_a_script_runs_after_its_end_wherever_that_comes() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let (mut state, before) = (0x9E37_79B9_7F4A_7C15_u64, interpreter.memory());
    let mut chance = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..1000 {
        let text = made_up(&mut chance);
        let is_over = Arc::new(AtomicBool::new(false));
        let polls = AtomicU64::new(1 + chance(40) as u64);
        let watchdog = Arc::new(Ending { polls, is_over: Arc::clone(&is_over) });
        let (mut out, mut quiet) = (Vec::new(), Quiet(is_over));
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let inputs = Inputs::new(&[], &[]);
        let source = Source { name: &text, text: text.as_bytes() };
        let error = interpreter.run(source, inputs, &mut quiet, watchdog, &mut reply).unwrap_err();
        let error = String::from_utf8(error).unwrap();
        assert!(
            error.starts_with("ERR Script killed by user with SCRIPT KILL... script: "),
            "{text}: {error}"
        );
        assert!(error.ends_with("on @user_script:1."), "{text}: {error}");
        assert_eq!(run(&mut interpreter, "return KEYS[1]").as_deref(), Ok("$2\r\nk1\r\n"), "after {text}");
    }
    interpreter.flush();
    let left = interpreter.memory();
    assert!(left < 2 * before, "{left} bytes, {before} at first");
}
