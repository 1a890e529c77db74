//! Scripts that try to leave the sandbox.

use super::fixture::Fixture;

/// Names that would lead out of the sandbox, or to memory outside Lua.
const FORBIDDEN: &[&str] = &[
    "package",
    "package.loadlib('libc.so.6', 'system')",
    "require('os')",
    "module('m')",
    "io",
    "io.popen('id')",
    "os.execute('id')",
    "os.exit()",
    "os.getenv('PATH')",
    "os.remove('x')",
    "os.tmpname()",
    "debug",
    "dofile('/etc/passwd')",
    "loadfile('/etc/passwd')",
    "newproxy(true)",
    "getfenv()",
    "setfenv(1, {})",
    "print('x')",
    // Unverified bytecode.
    "loadstring('\\27Lua' .. string.rep('x', 100))()",
    "(function() local n = 0 return load(function() n = n + 1 if n == 1 then return '\\27Luaxxxxxxxx' end end)() end)()",
    "string.dump(function() end)()",
    // State that all scripts share.
    "(function() redis.call = nil end)()",
    "(function() string.rep = nil end)()",
    "(function() global = 1 end)()",
    "rawset(_G, 'global', 1)",
    "setmetatable(_G, nil)",
    "rawset(redis, 'call', nil)",
    "(function() getmetatable('').__index = nil end)()",
    "(function() getmetatable('').__index.rep = nil end)()",
    // Patterns of published interpreter exploits.
    "string.rep('x', -1, 2^53):byte(2^53)()",
    "(function() local t = {} for i = 1, 300 do t[i] = i end return unpack(t, -2^31, 2^31 - 1) end)()",
    "(function() return unpack({}, 0, 1e9) end)()",
    "{unpack({}, 2147483648)}",
    "{unpack({}, '2147483648')}",
    "{unpack({}, 3e9, 5)}",
    "{unpack({}, 2147483648, 2147483647)}",
    "struct.pack('>I2147483648', 1)",
    "struct.unpack('c0', 'x', -2^31)",
    "cmsgpack.unpack('\\221\\255\\255\\255\\255')",
    "cjson.decode(string.rep('[', 100000))",
    "bit.tohex(1, -2147483648)()",
    "string.format('%99999d', 1)",
    "('x'):rep(1e10)",
];

#[test]
fn forbidden_globals_are_absent_from_the_sandbox() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    for text in FORBIDDEN {
        let script = format!("return {text}");
        let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
        let answer = peer.ask(request.as_bytes());
        assert!(answer.starts_with("-ERR"), "{text}: {answer}");
        assert_eq!(
            peer.ask(b"EVAL \"return redis.call('INCR', 'n') and ('ab'):rep(2)\" 0\r\n"),
            "$4",
            "{text}"
        );
        assert_eq!(peer.line(), "abab");
    }
    fixture.goes_on();
}

/// CVE-2025-46817 by a user who may only run scripts: the script that Redis 7.0 refuses, in each way to send it.
#[test]
fn no_range_of_unpack_ends_the_server() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    assert_eq!(
        peer.ask(b"ACL SETUSER runner on nopass ~lock:* +eval +eval_ro +evalsha +script|load\r\n"),
        "+OK"
    );
    assert_eq!(peer.ask(b"AUTH runner any\r\n"), "+OK");
    for command in ["EVAL", "EVAL_RO"] {
        let text = format!("{command} \"return {{unpack({{}}, 2147483648)}}\" 0\r\n");
        let answer = peer.ask(text.as_bytes());
        assert!(answer.starts_with("-ERR user_script:1: too many results to unpack"), "{command}: {answer}");
        let text = format!("{command} \"return select(2, pcall(unpack, {{}}, 3e9))\" 0\r\n");
        assert_eq!(peer.ask(text.as_bytes()), "$26");
        assert_eq!(peer.line(), "too many results to unpack");
    }
    fixture.goes_on();
}

/// The limits that docs/scripts.md and src/security.md name.
#[test]
fn unpack_gives_an_interpreted_script_7950_values_and_a_native_one_7999() {
    let fixture = Fixture::set();
    let mut peer = fixture.peer();
    for (text, most) in [("return #{unpack(KEYS)}", 7_950), ("return redis.call('del', unpack(KEYS))", 7_999)]
    {
        for count in [most, most + 1] {
            let keys = "$1\r\nk\r\n".repeat(count);
            let head =
                format!("*{}\r\n$4\r\nEVAL\r\n${}\r\n{text}\r\n$4\r\n{count}\r\n", count + 3, text.len());
            let is_given = peer.ask(format!("{head}{keys}").as_bytes()).starts_with(':');
            assert_eq!(is_given, count == most, "{text}: {count}");
        }
    }
}

/// CVE-2021-32672: the debugger of scripts read behind its buffer.
#[test]
fn there_is_no_debugger_for_scripts() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    for mode in ["YES", "SYNC", "NO"] {
        let answer = peer.ask(format!("SCRIPT DEBUG {mode}\r\n").as_bytes());
        assert!(answer.starts_with("-ERR unknown subcommand"), "{answer}");
    }
    assert_eq!(peer.ask(b"EVAL \"redis.breakpoint() redis.debug('x') return 1\" 0\r\n"), ":1");
    fixture.goes_on();
}
