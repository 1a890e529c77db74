//! Shortcuts do what the functions do that they shorten, which an argument too many has do it themselves.

use super::*;

/// Compares what two calls return or raise, and says how many pairs of them there were.
const COMPARES: &str = "
local function told(...)
    local all = {}
    for n = 1, select('#', ...) do all[n] = type((select(n, ...))) .. ' ' .. tostring((select(n, ...))) end
    return table.concat(all, ', ')
end
local function shown(text) return (told(text):gsub('user_script:%d+: ', '')) end
local texts = { '', 'a', 'key:{tag}:17', 'a%b%%c', ('ab'):rep(50), 'x\\0y\\0', '\\255\\1\\2 \\n', '12.50', '  two  words ',
    ('ab'):rep(30) .. 'c', 17 }
local patterns = { '', 'a', '.', '%d+', '(%a+):(.-):(%d+)$', '^a', '()b()', 'b*', '%s*(%S+)', '[^%w]', '%b{}', '%f[%w]%w+',
    '(', '%', '[a', '(a', 'a)', '%1', '%z', 'ab', '-', ('a?'):rep(20), '(.)%1', 'a)',
    ']', 'bc', 'x\\0', 'x\\0.', ('(.?)'):rep(6), ('(.?)'):rep(7), 1 }
local count = 0
local function same(name, short, long)
    local one, other = shown(told(pcall(short))), shown(told(pcall(long)))
    count = count + 1
    if one ~= other then error(name .. ': ' .. one .. ' is not ' .. other) end
end
for _, s in ipairs(texts) do
    for _, p in ipairs(patterns) do
        for _, init in ipairs({ 1, 2, -3, 0, 100, -100 }) do
            same('find', function() return string.find(s, p, init) end, function() return string.find(s, p, init, nil) end)
            same('match', function() return string.match(s, p, init) end, function() return string.match(s, p, init, nil) end)
        end
        local function all(...)
            local found = {}
            for a, b, c in string.gmatch(...) do found[#found + 1] = told(a, b, c) end
            return table.concat(found, ';')
        end
        same('gmatch', function() return all(s, p) end, function() return all(s, p, nil) end)
        for _, r in ipairs({ '', '-', '<%0>', '%1', '%2%1', '%%', '%9', '%x', 17 }) do
            same('gsub', function() return string.gsub(s, p, r) end, function() return string.gsub(s, p, r, nil) end)
        end
    end
    for _, n in ipairs({ 0, 1, 3, -1, 2.9 }) do
        same('rep', function() return string.rep(s, n) end, function() return string.rep(s, n, nil) end)
    end
    local other = cjson.new()
    same('encode', function() return cjson.encode(s) end, function() return other.encode(s) end)
    same('decode', function() return cjson.encode({ cjson.decode(s) }) end,
        function() return cjson.encode({ other.decode(s) }) end)
    same('unpack', function() return cmsgpack.unpack(s) end, function() return select(2, cmsgpack.unpack_limit(s, 100)) end)
    same('pack', function() return cmsgpack.pack(s, count) end,
        function() return (cmsgpack.pack(s, count, 1, 2, 3, 4, 5, 6, 7, 8):sub(1, -9)) end)
end
-- Whatever they are given, the script goes on.
local functions = { string.find, string.match, string.gsub, string.rep, string.gmatch, bit.band, bit.lshift, bit.tohex,
    cjson.encode, cjson.decode, struct.pack, struct.unpack, cmsgpack.pack, cmsgpack.unpack, redis.sha1hex,
    redis.status_reply, redis.error_reply }
local arguments = { { {}, {}, {} }, { false, 'x', 1 }, { nil, 'x' }, { 'x', {}, 'x' }, { 1, 2, {} }, { 'x', 'x', -1 } }
for _, f in ipairs(functions) do
    for _, given in ipairs(arguments) do
        for n = 0, 3 do pcall(f, unpack(given, 1, n)) end
    end
end
local formats = { '', 'b', '>I2', '<i3', 'Hb', '!4 b I4', '>!i', 'd', 'f', 'L', '>l', 's', 'Bc0', 'c3', 'x x', 'i33',
    '!3', 'y', 'ss', 'I2c2s', 'c0', 'i8i16', 'bs>Lc1' }
for _, f in ipairs(formats) do
    for _, a in ipairs({ 0, 5, -1, 1.5, 2 ^ 40, 'text', '\\0\\1', '7', false }) do
        for _, b in ipairs({ 3, 'abc', '', 2 ^ 63 }) do
            same('pack', function() return struct.pack(f, a, b) end,
                function() return struct.pack(f, a, b, nil, nil, nil, nil, nil, nil, nil) end)
        end
        same('pack', function() return struct.pack(f, a) end, function() return struct.pack(f, a, unpack({}, 1, 8)) end)
    end
    for _, s in ipairs(texts) do
        for _, at in ipairs({ 1, 2, 3, 0, -1, 100 }) do
            same('unpack', function() return struct.unpack(f, s, at) end, function() return struct.unpack(f, s, at, nil) end)
        end
        same('unpack', function() return struct.unpack(f, s) end, function() return struct.unpack(f, s, 1, nil) end)
    end
end
for _, a in ipairs({ 0, 1, -1, 2 ^ 31, 2 ^ 32, -2 ^ 31 - 1, 1.5, 2 ^ 53, 0xff }) do
    for _, b in ipairs({ 0, 1, 31, 32, 33, -1, 0.4 }) do
        same('tohex', function() return bit.tohex(a, b * 5) end, function() return bit.tohex(a, b * 5, nil) end)
        same('band', function() return bit.band(a, b) end, function() return bit.band(a, b, -1) end)
        same('bor', function() return bit.bor(a, b) end, function() return bit.bor(a, b, 0) end)
        same('bxor', function() return bit.bxor(a, b) end, function() return bit.bxor(a, b, 0) end)
        same('lshift', function() return bit.lshift(a, b) end, function() return bit.lshift(a, b, 0) end)
        same('rshift', function() return bit.rshift(a, b) end, function() return bit.rshift(a, b, 0) end)
        same('arshift', function() return bit.arshift(a, b) end, function() return bit.arshift(a, b, 0) end)
        same('rol', function() return bit.rol(a, b) end, function() return bit.rol(a, b, 0) end)
        same('ror', function() return bit.ror(a, b) end, function() return bit.ror(a, b, 0) end)
    end
end
return count";

#[test]
fn a_shortcut_leads_where_the_long_way_does() {
    let mut interpreter = interpreter(MEMORY_BYTES_MAX);
    let answer = run(&mut interpreter, COMPARES).unwrap();
    let count: u64 = answer.trim_start_matches(':').trim_end().parse().unwrap();
    assert!(count > 4000, "{count} were compared");
}
