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
