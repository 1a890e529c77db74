//! Published weaknesses of Lua 5.1 and of Redis' Lua, and library functions that compute sizes: `src/security.md` lists
//! them. Each test fails, hangs or crashes without its mend.

use super::*;

/// Runs a script that must be over, in whatever way, after few polls, and leaves the interpreter intact.
fn ends(text: &str) -> Result<String, String> {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let result = run_watched(&mut interpreter, text, After::polls(3_000));
    assert_eq!(run(&mut interpreter, "return 1").as_deref(), Ok(":1\r\n"), "after {text}");
    result
}

/// CVE-2025-46817: the difference of two indices overflowed. Each number is what C makes of it, as in Redis.
#[test]
fn unpack_refuses_more_values_than_the_stack_has() {
    for range in [
        "-2, 2147483647", "-2147483648, 2147483647", "0, 2147483647", "-2147483647, 10", "-2147483648",
        "2147483648", "'2147483648'", "2^31, 5", "2^31 + 0.5", "3e9", "3e9, 5", "-1e9",
        "2^63 - 1024, 2^31 - 1", "1/0, 2147483647", "-1/0, 2147483647", "0/0, 1e8", "2147483648, 2147483647",
        "2^32 - 9000, 5", "1, 7951",
    ] {
        for call in [format!("unpack({{}}, {range})"), format!("pcall(unpack, {{}}, {range})")] {
            let error = ends(&format!("local _, why = {call} error(why, 0)")).unwrap_err();
            assert!(error.contains("too many results to unpack"), "{call}: {error}");
        }
    }
    for (range, expected) in [
        ("2147483646, 2147483647", ":2"),
        ("2147483647, 2147483647", ":1"),
        ("-2147483648, -2147483648", ":1"),
        ("2147483648, 2147483648", ":1"),
        ("2147483647, 2147483648", ":0"),
        ("5, 3e9", ":0"),
        ("1, 1e300", ":0"),
        ("2^53", ":1"),
        ("2^63", ":1"),
        ("2^63, 2^63", ":1"),
        ("1/0", ":1"),
        ("-1/0", ":1"),
        ("0/0", ":1"),
        ("'1e300'", ":1"),
        ("2^32 + 1, 2^32 + 3", ":3"),
        ("1.9, 3.9", ":3"),
        ("1, 7950", ":7950"),
        ("2", ":0"),
    ] {
        let text = format!("return select('#', unpack({{}}, {range}))");
        assert_eq!(ends(&text).as_deref(), Ok(&*format!("{expected}\r\n")), "{range}");
    }
    assert_eq!(ends("return {unpack({1, 2, 3}, 2)}").as_deref(), Ok("*2\r\n:2\r\n:3\r\n"));
    assert_eq!(ends("return {unpack({1, 2, 3}, 3, 1)}").as_deref(), Ok("*0\r\n"));
}

/// The replies of Redis 7.0.15 on x86-64. Redis names the line in front of an error, and so does redlatch.
#[test]
fn numbers_at_the_edge_are_what_c_makes_of_them() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for (expression, expected) in [
        ("select(2147483648, 'a')", "bad argument #1 to 'select' (index out of range) nil"),
        ("select(-2147483648, 'a')", "bad argument #1 to 'select' (index out of range) nil"),
        ("select(2^32 + 2, 'a', 'b')", "b nil"),
        ("select('-1', 'a', 'b')", "b nil"),
        ("select(1/0, 'a')", "bad argument #1 to 'select' (index out of range) nil"),
        ("select('#', 1/0)", "1 nil"),
        ("select(1e300, 'a')", "bad argument #1 to 'select' (index out of range) nil"),
        ("select(2147483647, 'a')", "nil nil"),
        ("select(1.9, 'a', 'b')", "a b"),
        ("tonumber('zz', 2^32 + 36)", "1295 nil"),
        ("tonumber('11', 1/0)", "bad argument #2 to 'tonumber' (base out of range) nil"),
        ("tonumber('11', -2147483648)", "bad argument #2 to 'tonumber' (base out of range) nil"),
        ("tonumber('11', 0/0)", "bad argument #2 to 'tonumber' (base out of range) nil"),
        ("tonumber('11', '2')", "3 nil"),
        ("tonumber('ffffffffffffffffff', 16)", "1.844674407371e+19 nil"),
        ("tonumber('-1', 16)", "1.844674407371e+19 nil"),
        ("tonumber('1e309')", "inf nil"),
        ("string.byte('abc', 2^31)", "nil nil"),
        ("string.byte('abc', -2^63, 2^63)", "nil nil"),
        ("string.byte('abc', 1/0, 3)", "97 98"),
        ("string.byte('abc', 2^63 - 1024)", "nil nil"),
        ("string.byte('abc', -1)", "99 nil"),
        ("string.byte('abc', 0/0, 1)", "97 nil"),
        ("string.sub('abc', 2^53)", " nil"),
        ("string.sub('abc', 2^63)", "abc nil"),
        ("string.sub('abc', -2^63, 2^62)", "abc nil"),
        ("string.sub('abc', 2, -2^53)", " nil"),
        ("string.sub('abc', -1/0, 1/0)", " nil"),
        ("string.sub('abc', 2.9, '2')", "b nil"),
        ("string.char(2^32 + 97)", "a nil"),
        ("string.char(-2147483648)", "bad argument #1 to 'char' (invalid value) nil"),
        ("string.char(255.9):byte()", "255 nil"),
        (
            "table.concat({1, 2, 3}, ',', 2147483648, 2)",
            "invalid value (nil) at index -2147483648 in table for 'concat' nil",
        ),
        (
            "table.concat({1, 2, 3}, ',', 2147483647, 2147483647)",
            "invalid value (nil) at index 2147483647 in table for 'concat' nil",
        ),
        (
            "table.concat({1, 2, 3}, ',', -2147483648, 2147483647)",
            "invalid value (nil) at index -2147483648 in table for 'concat' nil",
        ),
        ("table.concat({1, 2, 3}, ',', 2, 2^32 + 3)", "2,3 nil"),
        ("table.concat({1, 2, 3}, ',', 1/0, 0)", "invalid value (nil) at index 0 in table for 'concat' nil"),
        ("table.concat({1, 2, 3}, ',', 1, 0/0)", " nil"),
        ("ipairs({})({7}, '0')", "1 7"),
        ("math.ldexp(1, 2147483647)", "inf nil"),
        ("math.ldexp(1, 2147483648)", "0 nil"),
        ("math.ldexp(1, 2^32 + 3)", "8 nil"),
        ("math.ldexp(1, 1/0)", "1 nil"),
        ("math.frexp(1/0)", "inf 0"),
        ("math.frexp(-1/0)", "-inf 0"),
        ("math.frexp(5e-324)", "0.5 -1073"),
        ("math.frexp(2^1023)", "0.5 1024"),
        ("string.format('%d', 2^53)", "9007199254740992 nil"),
        ("string.format('%d', -2^63)", "-9223372036854775808 nil"),
        ("string.format('%x', 2^32)", "100000000 nil"),
        ("string.format('%99.99f', -1e308):len()", "410 nil"),
        ("string.format('%5.1f', 1/0)", "  inf nil"),
        ("string.format('%c', 2^31 + 65)", " nil"),
        ("string.rep('x', 2^32 + 2)", "xx nil"),
        ("string.rep('x', -2147483648)", " nil"),
        ("string.rep('x', 1/0)", " nil"),
        ("string.find('abc', 'b', -2^63)", "2 2"),
        ("string.find('abc', 'b', 2^53)", "nil nil"),
        ("string.find('abc', '', 1/0)", "1 0"),
        ("string.gsub('aaa', 'a', 'b', 2^32 + 1)", "baa 1"),
        ("string.gsub('aaa', 'a', {a = 'b'}, -1/0)", "aaa 0"),
        ("table.remove({1, 2, 3}, 2^32 + 1)", "1 nil"),
        ("table.remove({1, 2, 3}, 2147483648)", "nil nil"),
        ("table.remove({1, 2, 3}, 1/0)", "nil nil"),
        ("error('x', 2147483648)", "x nil"),
        ("error('x', -1/0)", "x nil"),
        ("ipairs({})({7}, 2147483647)", "nil nil"),
        ("ipairs({})({7}, 1/0)", "nil nil"),
        ("select('#', math.frexp(0/0))", "2 nil"),
        ("string.char(1/0):byte()", "0 nil"),
    ] {
        let text = format!(
            "local _, a, b = pcall(function() local a, b = {expression} return a, b end) \
                return (tostring(a):gsub('^user_script:1: ', '')) .. ' ' .. tostring(b)"
        );
        let expected = format!("${}\r\n{expected}\r\n", expected.len());
        assert_eq!(run(&mut interpreter, &text).as_deref(), Ok(&*expected), "{expression}");
    }
}

#[test]
fn insert_refuses_positions_outside_the_list() {
    for position in ["-2147483648", "-1e300", "0", "2147483648", "1e300", "0/0"] {
        let error = ends(&format!("table.insert({{1, 2, 3}}, {position}, 1)")).unwrap_err();
        assert!(error.contains("position out of bounds"), "{position}: {error}");
    }
    let text = "local t = {1, 2, 3} table.insert(t, 4, 4) table.insert(t, 1, 0) return t";
    assert_eq!(ends(text).as_deref(), Ok("*5\r\n:0\r\n:1\r\n:2\r\n:3\r\n:4\r\n"));
}

/// A table of thirty values whose length Lua takes for more than six hundred million.
const SPARSE: &str = "local t = {1, 1, nil, 1} for i = 0, 27 do t[5 * 2^i] = 1 end";

#[test]
fn functions_on_tables_that_seem_long_can_be_ended() {
    assert_eq!(ends(&format!("{SPARSE} return #t > 600000000")).as_deref(), Ok(":1\r\n"));
    for call in [
        "table.remove(t, 1)",
        "table.insert(t, 1, 1)",
        "table.foreachi(t, function() end)",
        "table.sort(t, function() return false end)",
    ] {
        let error = ends(&format!("{SPARSE} {call}")).unwrap_err();
        assert!(error.contains("Script killed"), "{call}: {error}");
    }
    assert!(ends(&format!("{SPARSE} return #table.concat(t)")).is_err());
    assert!(ends(&format!("{SPARSE} return #{{unpack(t)}}")).is_err());
}

#[test]
fn sizes_that_a_script_names_are_refused_at_once() {
    for text in [
        "return (''):rep(2^31 - 1)",
        "return #('x'):rep(2^31 - 1)",
        "return #('xx'):rep(2^62)",
        "return string.format('%99999999d', 1)",
        "return string.format('%.99999999f', 1)",
        "return select(-2147483648, 1)",
        "return string.byte(('x'):rep(100000), 1, -1)",
        "return table.concat({}, 'x', 1, 2147483647)",
        "return table.concat({}, 'x', -2147483648, 2147483647)",
        "return math.random(-2147483648, 2147483647)",
        "return tonumber(('9'):rep(100000), 2147483647)",
        "return coroutine.wrap(function() return unpack({}, 1, 7949) end)()",
    ] {
        // Refused or answered: the point is that it is over.
        let _ = ends(text);
    }
}

/// CVE-2014-5461: a vararg function with many parameters that is called with few arguments.
#[test]
fn vararg_functions_with_many_parameters_have_room_on_the_stack() {
    let names: Vec<String> = (0..190).map(|number| format!("a{number}")).collect();
    let names = names.join(", ");
    let text = format!(
        "local function f({names}, ...) return a0, a189, select('#', ...) end \
         local n = 0 \
         local function deep(depth) if depth > 0 then n = n + select('#', f()) return deep(depth - 1) + 1 end return 0 end \
         for depth = 1, 200 do deep(depth) coroutine.wrap(deep)(depth) end return n"
    );
    assert_eq!(ends(&text).as_deref(), Ok(":120600\r\n"));
}

/// CVE-2015-4335: bytecode, as a text or written by `string.dump`.
#[test]
fn bytecode_is_neither_made_nor_run() {
    assert!(ends("return string.dump(function() end)").is_err());
    for text in ["'\\27Lua'", "'\\27'", "'\\27LJ\\1'", "('\\27Lua' .. ('\\0'):rep(100))"] {
        let source = format!("local f, why = loadstring({text}) return {{type(f), why ~= nil}}");
        assert_eq!(ends(&source).as_deref(), Ok("*2\r\n$3\r\nnil\r\n:1\r\n"), "{text}");
        let source = format!(
            "local n = 0 local f, why = load(function() n = n + 1 return ({text}):sub(n, n) end) return \
                {{type(f), why ~= nil}}"
        );
        assert_eq!(ends(&source).as_deref(), Ok("*2\r\n$3\r\nnil\r\n:1\r\n"), "{text}");
    }
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let error = run(&mut interpreter, "\x1bLua").unwrap_err();
    assert!(error.starts_with("ERR Error compiling script (new function): user_script:1:"), "{error}");
}

/// CVE-2022-24736: a text that closed the function in which Redis had put it.
#[test]
fn a_text_is_compiled_as_it_is() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for text in
        ["return 1 end function f() return 2", "end", "return 1 end", "f_0123456789 = nil end return 1"]
    {
        let error = run(&mut interpreter, text).unwrap_err();
        assert!(error.starts_with("ERR Error compiling script (new function): user_script:1:"), "{error}");
        let text = format!("return {{loadstring('{text}')}}");
        assert_eq!(run(&mut interpreter, &text).as_deref(), Ok("*0\r\n"));
    }
}

/// CVE-2015-8080, CVE-2018-11218, CVE-2018-11219, CVE-2020-14147, CVE-2022-24834, CVE-2024-31449: `cmsgpack`, `struct`,
/// `cjson` and `bit` were C.
#[test]
fn libraries_that_were_c_hold_against_edges() {
    let mut interpreter = interpreter(16 << 20);
    for (text, expected) in [
        ("return bit.tohex(65535, -2147483648)", Ok("$8\r\n0000FFFF\r\n")),
        ("return bit.tohex(1, 2^31)", Ok("$8\r\n00000001\r\n")),
        ("return bit.rol(1, -2147483648)", Ok(":1\r\n")),
        ("return #cmsgpack.pack(unpack({}, 1, 7900))", Ok(":7900\r\n")),
        ("return {pcall(cmsgpack.unpack, '\\221\\255\\255\\255\\255')}", Err("Missing bytes")),
        ("return {pcall(cmsgpack.unpack, '\\219\\255\\255\\255\\255x')}", Err("Missing bytes")),
        ("return {pcall(cmsgpack.unpack_limit, 'a', 2147483647, -2147483648)}", Err("Invalid request")),
        ("return {pcall(struct.pack, 'c2147483647', 'x')}", Err("string too short")),
        ("return {pcall(struct.pack, 'c2147483648', 'x')}", Err("integral size overflow")),
        ("return {pcall(struct.pack, ('i'):rep(9) .. '9999999999', 1)}", Err("got nil")),
        ("return {pcall(struct.pack, 'i33', 1)}", Err("integral size 33 is larger than limit of 32")),
        ("return {pcall(struct.unpack, 'c2147483647', 'x')}", Err("data string too short")),
        (
            "return {pcall(struct.unpack, 'i4', 'xxxxxxxx', 9223372036854775807)}",
            Err("data string too short"),
        ),
        ("return {pcall(struct.unpack, 'i4', 'xxxxxxxx', -1)}", Err("data string too short")),
        ("return {pcall(struct.unpack, 'Ic0', ('\\255'):rep(16))}", Err("data string too short")),
        ("return {pcall(struct.unpack, ('b'):rep(1e6), ('x'):rep(1e6))}", Err("too many results")),
        ("return {pcall(struct.pack, '!3', 1)}", Err("alignment 3 is not a power of 2")),
        ("return #struct.pack('!1073741824bi32', 1, 1)", Ok(":64\r\n")),
        ("return {pcall(cjson.decode, '\"\\\\u12')}", Err("EOF")),
        ("return #cjson.encode(('\\1'):rep(1e6))", Ok(":6000002\r\n")),
        ("return #cjson.encode(('\\1'):rep(3e6))", Err("more memory than its limit")),
    ] {
        let seen = run(&mut interpreter, text).unwrap_or_else(|error| error);
        let (Ok(part) | Err(part)) = expected;
        assert!(seen.contains(part), "{text}: {seen}");
    }
}

/// CVE-2021-32626 and CVE-2021-43519: more on Lua's stack than there is room for, and coroutines in coroutines.
#[test]
fn nothing_is_pushed_beyond_the_stack() {
    for text in [
        "local t = {} for i = 1, 7900 do t[i] = {{}} end return redis.call('ECHO', unpack({}, 1, 7900))",
        "local t = {} for i = 1, 300 do t = {t} end return t",
        "local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end return f(1)",
        "local function f() return pcall(f) end return select('#', f())",
        "local function f() return pcall(coroutine.wrap(f)) end return select('#', f())",
        "return select('#', pcall(unpack, {}, 1, 7949))",
        "local f = coroutine.wrap(function(...) return coroutine.yield(...) end) return select('#', \
            f(unpack({}, 1, 7900)))",
        "return #cjson.decode(('['):rep(100) .. (']'):rep(100))",
    ] {
        let _ = ends(text);
    }
}

/// CVE-2022-0543, CVE-2024-46981: what leads out of the sandbox, and finalisers that a script could give a value.
#[test]
fn what_leads_out_of_the_sandbox_is_not_there() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for name in [
        "package", "require", "module", "io", "os", "debug", "dofile", "loadfile", "newproxy", "getfenv",
        "setfenv", "print", "__redis__err__handler",
    ] {
        let error = run(&mut interpreter, &format!("return {name}")).unwrap_err();
        assert!(error.contains("nonexistent global variable"), "{name}: {error}");
        assert_eq!(
            run(&mut interpreter, &format!("return type(rawget(_G, '{name}'))")).as_deref(),
            Ok("$3\r\nnil\r\n")
        );
    }
    let text = "setmetatable({}, {__gc = function() redis.call('SEEN') end}) collectgarbage() collectgarbage() return 1";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok(":1\r\n"));
}

/// CVE-2022-24735, CVE-2025-46818: a script that changes what the next script, of another user, finds.
#[test]
fn metatables_and_libraries_cannot_be_changed() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for attempt in [
        "getmetatable('').__index = function() return 'changed' end",
        "rawset(getmetatable(''), '__index', {})",
        "getmetatable('').__add = function() return 1 end",
        "setmetatable(getmetatable(''), {})",
        "rawset(getmetatable(''), '__index', nil)",
        "rawset(string, 'rep', nil)",
        "string.rep = nil",
        "('x').rep = nil",
        "rawset(('x'), 'rep', nil)",
        "getmetatable(1).__index = {}",
        "getmetatable(nil).__index = {}",
        "getmetatable(print).__index = {}",
        "getmetatable(_G).__index = {}",
        "rawset(getmetatable(_G), '__index', nil)",
        "rawset(_G, 'redis', nil)",
        "table.insert(string, 'x')",
        "table.remove(string)",
        "table.sort(redis)",
        "for _, t in pairs(_G) do if type(t) == 'table' then t.x = 1 end end",
        "local _, t = pairs(string) t.rep = nil",
        "cjson.null = 1",
    ] {
        let text = format!("pcall(function() {attempt} end) return 1");
        assert_eq!(run(&mut interpreter, &text).as_deref(), Ok(":1\r\n"), "{attempt}");
        let text = "return {('x'):rep(2), string.rep('y', 2), type(redis.call), tostring(pcall(function() \
            return 'a' + 'b' end)), \
                    tostring(rawget(string, 1)), type(cjson.null)}";
        let expected =
            "*6\r\n$2\r\nxx\r\n$2\r\nyy\r\n$8\r\nfunction\r\n$5\r\nfalse\r\n$3\r\nnil\r\n$8\r\nuserdata\r\n";
        assert_eq!(run(&mut interpreter, text).as_deref(), Ok(expected), "after {attempt}");
    }
}

/// CVE-2025-46819: a delimiter of a long string so long that its length overflows needs a text of two gigabytes.
#[test]
fn a_text_is_too_long_long_before_a_delimiter_is() {
    const { assert!(crate::sandbox::TEXT_BYTES_MAX < i32::MAX as usize / 8) };
    let mut interpreter = interpreter(1 << 30);
    let text = "local s = ('='):rep(2^26 + 1) local f, why = loadstring('return [' .. s .. '[x]' .. s .. ']') \
        return {type(f), why}";
    assert_eq!(
        run(&mut interpreter, text).as_deref(),
        Ok("*2\r\n$3\r\nnil\r\n$20\r\nthe text is too long\r\n")
    );
    for text in ["return [=", "return [==x", "return [==[x]=]", "--[==[ x", "return [==[x]==]"] {
        let _ = ends(text);
    }
}

/// CVE-2025-49844: the parser holds the name of a chunk where a collection during parsing frees it.
#[test]
fn nothing_is_collected_while_a_text_is_compiled() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let text = "local body = {} for i = 1, 2000 do body[i] = 'local function f' .. i % 100 .. '() return \"' .. \
        i .. 'x\" end' end \
                body = 'do ' .. table.concat(body, ' end do ') .. ' end' \
                for round = 1, 20 do \
                    for i = 1, 200 do local garbage = ('x'):rep(i) .. round end \
                    local f, why = loadstring(body .. ' error(1)', '@a chunk of a name that nobody else holds ' .. round) \
                    local ok, e = pcall(f) \
                    if e ~= 'a chunk of a name that nobody else holds ' .. round .. ':1: 1' then return e or why end \
                end return 'kept'";
    assert_eq!(run(&mut interpreter, text).as_deref(), Ok("$4\r\nkept\r\n"));
}

/// For each `elseif` and `break` the compiler goes through those before it, and nobody can end it.
#[test]
fn a_text_with_many_branches_is_not_compiled() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    for (start, branch, end) in
        [("if x then ", "elseif x then ", "end"), ("repeat ", "if x then break end ", "until true")]
    {
        let text = |count: usize| format!("local x {start}{}{end} return 1", branch.repeat(count));
        assert_eq!(run(&mut interpreter, &text(4000)).as_deref(), Ok(":1\r\n"));
        let error = run(&mut interpreter, &text(100_000)).unwrap_err();
        assert!(error.contains("the text has too many branches"), "{error}");
        let text = format!("local f, why = loadstring(('{branch}'):rep(100000)) return why");
        assert_eq!(run(&mut interpreter, &text).as_deref(), Ok("$30\r\nthe text has too many branches\r\n"));
    }
}
