//! What a script reaches by `redis.call`, and for how long.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Calls a function of a library, and says how often it reached the server.
fn call(interpreter: &mut LuaInterpreter, id: u32, name: &str) -> (Result<String, String>, u64) {
    let (mut out, mut echo) = (Vec::new(), Echo::default());
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let result = interpreter.call((id, name), Inputs::new(&[], &[]), &mut echo, Arc::new(Asleep), &mut reply);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (result.map(|()| text(&out)).map_err(|line| text(&line)), echo.calls)
}

#[test]
fn a_kept_function_or_coroutine_calls_the_server_of_its_caller() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let text = "local kept, routine
        redis.register_function('keep', function()
            kept = redis.pcall
            routine = coroutine.create(function() while true do coroutine.yield(redis.call('COROUTINE')[1]) end end)
            return select(2, coroutine.resume(routine))
        end)
        redis.register_function('use', function()
            return {kept('KEPT')[1], select(2, coroutine.resume(routine))}
        end)";
    let loaded = interpreter.load(text.as_bytes(), &mut Echo::default()).unwrap();
    assert_eq!(call(&mut interpreter, loaded.id, "keep"), (Ok("$9\r\nCOROUTINE\r\n".to_owned()), 1));
    for _ in 0..2 {
        let expected = "*2\r\n$4\r\nKEPT\r\n$9\r\nCOROUTINE\r\n".to_owned();
        assert_eq!(call(&mut interpreter, loaded.id, "use"), (Ok(expected), 2));
    }
}

#[test]
fn a_library_reaches_no_server_while_it_is_loaded() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let mut echo = Echo::default();
    for text in ["redis.call('PING')", "pcall(redis.pcall, 'PING')", "server.call('PING')"] {
        let text = format!("redis.register_function('f', function() end) {text}");
        assert!(interpreter.load(text.as_bytes(), &mut echo).is_err(), "{text}");
    }
    assert_eq!(echo.calls, 0);
}

/// A server that dies of every command.
struct Broken;

impl Commands for Broken {
    fn command(&mut self, _: &[&[u8]], _: Protocol, _: &mut Vec<u8>) -> Verdict {
        panic!("broken");
    }

    fn log(&mut self, _: Level, _: &[u8]) {}
}

#[test]
fn a_panic_of_a_command_is_caught_by_no_script_and_ends_its_calls() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "redis.call('PING')",
        "redis.pcall('PING') return 1",
        "for i = 1, 10 do pcall(redis.call, 'PING') end return 1",
        "return coroutine.resume(coroutine.create(function() redis.call('PING') end))",
    ] {
        let (mut out, mut broken) = (Vec::new(), Broken);
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            interpreter.run(source(text), Inputs::new(&[], &[]), &mut broken, Arc::new(Asleep), &mut reply)
        }));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"broken"), "{text}");
        assert_eq!(run(&mut interpreter, "return redis.call('PING')").as_deref(), Ok("*1\r\n$4\r\nPING\r\n"));
    }
}

#[test]
fn a_command_that_ends_its_script_is_the_last_one() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "redis.call('END') redis.call('PING')",
        "redis.pcall('END') redis.pcall('PING') return 1",
        "for i = 1, 10 do pcall(redis.call, 'END') end return 1",
        "coroutine.resume(coroutine.create(function() redis.call('END') end)) return redis.call('PING')",
    ] {
        let (mut out, mut echo) = (Vec::new(), Echo::default());
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let ended =
            interpreter.run(source(text), Inputs::new(&[], &[]), &mut echo, Arc::new(Asleep), &mut reply);
        assert!(ended.is_err() && echo.calls == 1, "{text}: {ended:?}, {} calls", echo.calls);
        assert_eq!(run(&mut interpreter, "return redis.call('PING')").as_deref(), Ok("*1\r\n$4\r\nPING\r\n"));
    }
}

/// A watchdog that dies when it is asked.
struct Ill;

impl Watchdog for Ill {
    fn poll(&self) -> Verdict {
        panic!("ill");
    }
}

#[test]
fn a_panic_of_the_watchdog_is_caught_by_no_script_and_ends_it() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "return coroutine.resume(coroutine.create(function() while true do end end))",
        "while true do string.find(('a'):rep(40), ('a*'):rep(30) .. 'b') end",
        "while true do for _ in ('a'):rep(4000):gmatch('a*b') do end end",
    ] {
        let panic = catch_unwind(AssertUnwindSafe(|| run_watched(&mut interpreter, text, Arc::new(Ill))));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"ill"), "{text}");
        assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"), "after {text}");
    }
}

#[test]
fn nobody_handles_the_end_of_a_script() {
    let mut interpreter = interpreter(16 << 20);
    let for_ever = "while true do end";
    for text in [
        "while true do end",
        "local s = 'x' while true do s = s .. s end",
        "coroutine.wrap(function() while true do end end)()",
        "local ok, e = coroutine.resume(coroutine.create(function() while true do end end)) error(e)",
        "string.find(('a'):rep(40), ('a*'):rep(30) .. 'b')",
        "while true do pcall(string.find, ('a'):rep(40), ('a*'):rep(9) .. 'b') end",
        "string.gsub(('a'):rep(9), 'a', function() while true do end end)",
        "local t = {} for i = 1, 9 do t[i] = i end table.sort(t, function() while true do end end)",
        "local t = {} for i = 1, 2e4 do t[i] = i % 2 end table.sort(t)",
        "load(function() while true do end end)",
        "load(function() return ' ' end)",
        "cjson.encode(setmetatable({}, {__index = function() while true do end end})) while true do end",
        "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
        "while true do redis.pcall('FAIL') end",
        "while true do collectgarbage() end",
        "return ('x'):rep(2^30)",
    ] {
        // What handles is seen where it calls, and a function in C where it changes something.
        for handler in
            ["function() redis.call('SEEN') end", "coroutine.wrap(function() redis.call('SEEN') end)"]
        {
            let text = format!(
                "local h = {handler} xpcall(function() xpcall(function() {text} end, h) end, h) redis.call('SEEN') {for_ever}"
            );
            let (mut out, mut echo) = (Vec::new(), Seen(false));
            let mut reply = Reply::new(&mut out, Protocol::Resp2);
            let inputs = Inputs::new(&[], &[]);
            let result = interpreter.run(source(&text), inputs, &mut echo, After::polls(300), &mut reply);
            let error = String::from_utf8(result.unwrap_err()).unwrap();
            assert!(error.contains("Script killed") || error.contains("more memory than"), "{text}: {error}");
            assert!(!echo.0, "{text}: {error}");
            assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"), "after {text}");
        }
    }
}

#[test]
fn a_coroutine_that_was_ended_with_a_call_ends_no_other() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let text = "local routine, wrapped
        local function hang() while true do end end
        redis.register_function('hang', function()
            routine = coroutine.create(hang)
            coroutine.resume(routine)
        end)
        redis.register_function('hang_too', function()
            wrapped = coroutine.wrap(hang)
            wrapped()
        end)
        redis.register_function('look', function()
            local _, one = coroutine.resume(routine)
            local _, other = pcall(wrapped)
            return {coroutine.status(routine), one, (other:gsub('^.*: ', ''))}
        end)";
    let loaded = interpreter.load(text.as_bytes(), &mut Echo::default()).unwrap();
    for name in ["hang", "hang_too"] {
        let (mut out, mut echo) = (Vec::new(), Echo::default());
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let inputs = Inputs::new(&[], &[]);
        interpreter.call((loaded.id, name), inputs, &mut echo, After::polls(3), &mut reply).unwrap_err();
    }
    let dead = "$28\r\ncannot resume dead coroutine\r\n";
    let expected = format!("*3\r\n$4\r\ndead\r\n{dead}{dead}");
    assert_eq!(call(&mut interpreter, loaded.id, "look"), (Ok(expected), 0));
}

/// A server that is called or is not.
struct Seen(bool);

impl Commands for Seen {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Verdict {
        self.0 |= words == [b"SEEN"];
        Reply::new(reply, protocol).error("MY failure");
        Verdict::GoOn
    }

    fn log(&mut self, _: Level, _: &[u8]) {}
}

#[test]
fn keys_and_arguments_are_new_for_every_script() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let show = "return {KEYS[1], ARGV[1], ARGV[2], #KEYS, #ARGV}";
    let expected = "*5\r\n$2\r\nk1\r\n$2\r\na1\r\n$2\r\na2\r\n:1\r\n:2\r\n";
    for text in [
        "KEYS[1] = 'x' ARGV[1] = nil ARGV[9] = 'y' return 1",
        "setmetatable(KEYS, {__index = function() return 'x' end}) KEYS[1] = nil return 1",
        "table.insert(ARGV, 1, 'x') table.remove(KEYS) return 1",
        "KEYS[1] = 'x' error('y')",
        "KEYS[1] = 'x' while true do end",
    ] {
        let _ = run_watched(&mut interpreter, text, After::polls(3));
        assert_eq!(run(&mut interpreter, show).as_deref(), Ok(expected), "after {text}");
    }
}

#[test]
fn a_reply_that_has_no_end_ends() {
    let mut interpreter = interpreter(1 << 20);
    for text in [
        "local t = {1} for i = 1, 60 do t = {t, t} end return t",
        "local t = {} t[1] = t t[2] = t return t",
        "redis.setresp(3) local t = {map = {}} t.map[1] = t t.map[2] = t return t",
        "redis.setresp(3) local t = {set = {}} t.set[t] = 1 t.set[{t}] = 2 return t",
        "local s, t = ('x'):rep(2^16), {} for i = 1, 100 do t[i] = s end return t",
    ] {
        let error = run(&mut interpreter, text).unwrap_err();
        assert!(error.contains("more memory than its limit"), "{text}: {error}");
    }
    let text = "local t = {1} for i = 1, 60 do t = {t, t} end return t";
    let error = run_watched(&mut interpreter, text, After::polls(3)).unwrap_err();
    assert!(error.contains("Script killed"), "{error}");
    assert_eq!(run(&mut interpreter, "return {{1}}").as_deref(), Ok("*1\r\n*1\r\n:1\r\n"));
}

#[test]
fn room_that_a_library_function_has_written_into_is_given_back() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "cjson.encode(('x'):rep(2^22))",
        "local t = {} for i = 1, 1e5 do t[i] = 'a text' end return #cjson.encode(t)",
        "return #('x'):gsub('x', ('y'):rep(2^22))",
        "return #cmsgpack.pack(('x'):rep(2^22))",
        "return #struct.pack('c0', ('x'):rep(2^22))",
    ] {
        run(&mut interpreter, text).unwrap();
        let kept = interpreter.reply.capacity();
        assert!(kept <= 64 * 1024, "{kept} bytes after {text}");
    }
}

#[test]
fn replies_that_are_kept_count_as_memory() {
    let mut interpreter = interpreter(4 << 20);
    let text = "local t, word = {}, ('x'):rep(2000) \
                for i = 1, 1e6 do t[i] = redis.call('ECHO', i, word .. i, word .. (i + 1)) end return 1";
    let error = run(&mut interpreter, text).unwrap_err();
    assert!(error.contains("more memory than its limit"), "{error}");
    assert!(interpreter.memory() < 4 << 20);
    assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"));
}
