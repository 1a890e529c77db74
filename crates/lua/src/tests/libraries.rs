//! cjson, cmsgpack and libraries of functions in hostile hands.

use redlatch_core::scripts::library::Loaded;

use super::*;

#[test]
fn no_library_holds_more_memory_than_a_script_may() {
    let mut interpreter = interpreter(4 << 20);
    let before = interpreter.memory();
    for text in [
        "local t = {1} for i = 1, 30 do t = {t, t} end return #cjson.encode(t)",
        "local t = {'x'} for i = 1, 15 do t = {t, t, t, t, t, t, t, t} end return #cmsgpack.pack(t)",
        "local s = ('x'):rep(2^20) return #cmsgpack.pack(s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)",
        "local s = ('\\1'):rep(2^20) return #cjson.encode(s)",
        "local t = cjson.decode('[' .. ('{},'):rep(2^16) .. '1]') return #t",
        "local t = cmsgpack.unpack('\\221\\0\\255\\255\\255' .. ('\\144'):rep(2^18)) return #t",
        "local t = {1} for i = 1, 30 do t = {a = t, b = t} end return #cjson.encode(t)",
        "local s = ('x'):rep(2^20) return #struct.pack('c0c0c0c0c0c0c0c0', s, s, s, s, s, s, s, s)",
        "local s = ('i32'):rep(2^18) local t = {} for i = 1, 2^18 do t[i] = 1 end return #struct.pack(s, 1)",
        "local s = ('x'):rep(2^20) local t = {} for i = 1, 9 do t[i] = struct.unpack('c1048576', s) .. i end",
    ] {
        let error = run_watched(&mut interpreter, text, After::polls(2_000_000)).unwrap_err();
        assert!(error.contains("more memory than its limit of 4194304 bytes"), "{text}: {error}");
        let memory = interpreter.memory();
        assert!(memory < before + (2 << 20), "{text}: {memory} bytes stay behind");
    }
}

#[test]
fn no_library_survives_a_kill() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in [
        "local t = {1} for i = 1, 30 do t = {t, t} end return #cjson.encode(t)",
        "local t = {'x'} for i = 1, 15 do t = {t, t, t, t, t, t, t, t} end return #cmsgpack.pack(t)",
        "local s = '[' .. ('1,'):rep(1e7) .. '1]' return #cjson.decode(s)",
        "local s = ('\\1'):rep(7000) while true do pcall(cmsgpack.unpack, s) end",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do pcall(cjson.encode, t) end",
        "local t = {} for i = 1, 1000 do t[i] = i end while true do pcall(cmsgpack.pack, t) end",
        "while true do pcall(cjson.decode, 'x') end",
        "while true do pcall(struct.pack, 'i', 1) end",
        "local s = (' '):rep(2^20) while true do struct.pack(s) struct.size(s) struct.unpack(s, '') end",
        "local s = ('x'):rep(2^24) while true do pcall(struct.unpack, 's', s) end",
    ] {
        let error = run_watched(&mut interpreter, text, After::polls(100)).unwrap_err();
        assert!(error.contains("Script killed by user with SCRIPT KILL."), "{text}: {error}");
    }
}

#[test]
fn what_is_nested_too_deep_is_an_error() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for (text, expected) in [
        ("local t = {} t[1] = t return cjson.encode(t)", "Cannot serialise, excessive nesting (129)"),
        ("local t = {} t.a = t return cjson.encode(t)", "Cannot serialise, excessive nesting (129)"),
        ("return cjson.decode(('['):rep(1e6))", "recursion limit exceeded"),
        ("return cjson.decode(('{\"a\":'):rep(1e6))", "recursion limit exceeded"),
        ("return cmsgpack.unpack(('\\145'):rep(1e6))", "stack overflow (in function mp_decode_to_lua_array)"),
        ("return cmsgpack.unpack(('\\129a'):rep(1e6))", "stack overflow"),
        ("return cmsgpack.unpack(('\\161a'):rep(1e6))", "stack overflow"),
    ] {
        let error = run(&mut interpreter, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let text = "local t = {} t[1] = t return #cmsgpack.pack(t)";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(":17\r\n"));
}

fn load(interpreter: &mut LuaInterpreter, text: &str) -> Result<Loaded, String> {
    let loaded = interpreter.load(text.as_bytes(), &mut Echo::default());
    loaded.map_err(|line| String::from_utf8_lossy(&line).into_owned())
}

fn call(
    interpreter: &mut LuaInterpreter,
    library: u32,
    name: &str,
    watchdog: Arc<dyn Watchdog>,
) -> Result<String, String> {
    let (mut out, mut echo) = (Vec::new(), Echo::default());
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let result = interpreter.call((library, name), Inputs::new(&[], &[]), &mut echo, watchdog, &mut reply);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    result.map_err(|line| text(&line)).map(|()| text(&out))
}

#[test]
fn a_library_that_takes_too_long_is_not_loaded() {
    let mut interpreter = interpreter(16 << 20);
    for (text, expected) in [
        ("while true do end", "FUNCTION LOAD timeout"),
        (
            "local function f() redis.register_function('f', f) while true do end end f()",
            "FUNCTION LOAD timeout",
        ),
        ("local s = 'x' while true do s = s .. s end", "more memory than its limit"),
        (
            "local s = ('x'):rep(2^20) for i = 1, 1e9 do
                redis.register_function{function_name = 'f' .. i, callback = function() end, description = s}
            end",
            "more memory than its limit",
        ),
    ] {
        let error = load(&mut interpreter, text).unwrap_err();
        assert!(error.starts_with("ERR Error registering functions: ERR "), "{error}");
        assert!(error.contains(expected), "{text}: {error}");
    }
    let loaded = load(&mut interpreter, "redis.register_function('f', function() return 1 end)").unwrap();
    assert_eq!(call(&mut interpreter, loaded.id, "f", Arc::new(Asleep)).as_deref(), Ok(":1\r\n"));
}

#[test]
fn a_library_goes_when_it_is_forgotten() {
    let mut interpreter = interpreter(16 << 20);
    // Each has a string of its own: Lua keeps equal ones once.
    let text = |n: u32| {
        format!("local s = ('x'):rep(2^20) .. {n} redis.register_function('f', function() return #s > 0 end)")
    };
    for n in 0..50 {
        let loaded = load(&mut interpreter, &text(n)).unwrap();
        assert_eq!(loaded.functions.len(), 1);
        assert_eq!(call(&mut interpreter, loaded.id, "f", Arc::new(Asleep)).as_deref(), Ok(":1\r\n"));
        interpreter.forget(&[loaded.id]);
    }
    let kept: Vec<_> = (0..50).map_while(|n| load(&mut interpreter, &text(n)).ok()).collect();
    assert!((2..16).contains(&kept.len()), "{} libraries of 1 MiB each fit into 16 MiB", kept.len());
    interpreter.forget(&kept.iter().map(|loaded| loaded.id).collect::<Vec<_>>());
    load(&mut interpreter, &text(99)).unwrap();
}

#[test]
fn functions_are_held_to_the_budget_of_scripts() {
    let mut interpreter = interpreter(16 << 20);
    let text = "redis.register_function('spin', function() while true do pcall(function() while true do end end) end end)
        redis.register_function('grow', function() local t = {} while true do pcall(function() t[#t + 1] = {} end) end end)
        redis.register_function('fine', function() return {1, 2} end)";
    let loaded = load(&mut interpreter, text).unwrap();
    let error = call(&mut interpreter, loaded.id, "spin", After::polls(300)).unwrap_err();
    assert!(error.contains("Script killed by user with SCRIPT KILL."), "{error}");
    let error = call(&mut interpreter, loaded.id, "grow", After::polls(2_000_000)).unwrap_err();
    assert!(error.contains("more memory than its limit"), "{error}");
    assert_eq!(
        call(&mut interpreter, loaded.id, "fine", Arc::new(Asleep)).as_deref(),
        Ok("*2\r\n:1\r\n:2\r\n")
    );
}
