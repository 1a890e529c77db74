//! Test inputs for the libraries: Lua texts with random values in them, and random bytes as ARGV.
//!
//! Rule    table keys are short: Redis' Lua hashes strings of 32 bytes or more differently, and so orders tables
//!         differently. No table is a key, because its position depends on its address.

use crate::support::rng::Rng;

/// One script, and its ARGV.
pub(crate) struct Case {
    pub(crate) code: String,
    pub(crate) args: Vec<Vec<u8>>,
}

const NUMBERS: &[&str] = &[
    "0", "1", "-1", "31", "32", "33", "127", "128", "-32", "-33", "-128", "-129", "255", "256", "-32768",
    "-32769", "65535", "65536", "2^31 - 1", "2^31", "-2^31", "-2^31 - 1", "2^32 - 1", "2^32", "2^53", "2^62",
    "2^63", "2^64", "-2^63", "0.5", "1.5", "2.5", "-1.5", "0.1", "1/3", "1e14", "1e15", "123456789012345",
    "1e-5", "0.0001", "1e300", "5e-324", "1.5e-40", "3.4e38", "1/0", "-1/0", "0/0",
];
const OTHERS: &[&str] = &["nil", "true", "false", "{}", "''", "'x'", "'12'", "'0x1F'", "' 7 '"];
const KEYS: &[&str] = &["''", "'a'", "'b'", "'key'", "'\\0'", "'1'", "'\\255\\127'"];
const STRINGS: &[&str] = &[
    "''", "'a'", "'\\0'", "'\"\\\\/\\b\\f\\n\\r\\t'", "'\\1\\31\\127\\128\\255'", "'\\195\\169'",
    "('x'):rep(31)", "('x'):rep(32)", "('x'):rep(255)", "('x'):rep(256)", "('x'):rep(65536)", "'12'",
];

fn number(rng: &mut Rng) -> String {
    match rng.below(20) {
        0 => rng.pick(OTHERS).to_owned(),
        1..=11 => format!("({})", rng.pick(NUMBERS)),
        12..=15 => (rng.below(600) as i64 - 300).to_string(),
        _ => {
            let power = rng.below(60) as i32 - 30;
            format!("{:e}", (rng.below(1 << 30) as f64 - f64::from(1 << 29)) * 10_f64.powi(power))
        }
    }
}

fn list(rng: &mut Rng, count: usize, one: fn(&mut Rng) -> String) -> String {
    (0..count).map(|_| one(rng)).collect::<Vec<_>>().join(", ")
}

pub(crate) fn bit(rng: &mut Rng) -> Case {
    const NAMES: &[&str] = &[
        "tobit", "tohex", "bnot", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "bswap",
    ];
    let count = rng.pick(&[0, 1, 1, 2, 2, 2, 2, 3]);
    let code = format!("return bit.{}({})", rng.pick(NAMES), list(rng, count, number));
    Case { code, args: Vec::new() }
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let len = rng.below(len + 1);
    (0..len)
        .map(|_| if rng.one_in(2) { rng.pick(&[0, 1, 65, 127, 128, 255]) } else { rng.below(256) as u8 })
        .collect()
}

fn value(rng: &mut Rng) -> String {
    value_in(rng, 0)
}

fn value_in(rng: &mut Rng, depth: usize) -> String {
    match rng.below(if depth > 4 { 10 } else { 20 }) {
        0..=2 => rng.pick(STRINGS).to_owned(),
        3..=7 => number(rng),
        8 => rng.pick(&["true", "false", "nil", "cjson.null"]).to_owned(),
        9 => if rng.one_in(8) { "tostring" } else { "{}" }.to_owned(),
        10..=14 => {
            let count = if depth < 2 { rng.pick(&[0, 1, 2, 3, 15, 16, 17]) } else { rng.below(3) };
            let items: Vec<_> = (0..count).map(|_| value_in(rng, depth + 1)).collect();
            format!("{{{}}}", items.join(", "))
        }
        _ => {
            let mut items = Vec::new();
            for _ in 0..rng.below(5) {
                let key = match rng.below(12) {
                    0 => rng.pick(&["1", "2", "3", "5", "12", "20", "-1", "0", "1.5", "2^40"]),
                    1 if rng.one_in(4) => "true",
                    _ => rng.pick(KEYS),
                };
                items.push(format!("[{key}] = {}", value_in(rng, depth + 1)));
            }
            format!("{{{}}}", items.join(", "))
        }
    }
}

pub(crate) fn json_out(rng: &mut Rng) -> Case {
    Case { code: format!("return cjson.encode({})", value(rng)), args: Vec::new() }
}

fn json(rng: &mut Rng, depth: usize, into: &mut Vec<u8>) {
    const SCALARS: &[&str] = &[
        "0", "1", "-1", "1.5", "1e10", "1E-3", "12345678901234567890", "0.1", "5e-324", "true", "false",
        "null", "\"\"", "\"a\"", "\"\\u00e9\\ud83d\\ude00\"", "\"\\u0000\"",
        "\"\\b\\f\\n\\r\\t\\/\\\\\\\"\"", "\"\u{e9}\u{1f600}\"",
    ];
    let space = rng.pick(&["", "", " ", "\n\t", "\r"]);
    into.extend_from_slice(space.as_bytes());
    let kind = if depth > 5 { 0 } else { rng.below(10) };
    match kind {
        0..=4 => into.extend_from_slice(rng.pick(SCALARS).as_bytes()),
        5..=7 => {
            into.push(b'[');
            for place in 0..rng.below(5) {
                if place > 0 {
                    into.push(b',');
                }
                json(rng, depth + 1, into);
            }
            into.push(b']');
        }
        _ => {
            into.push(b'{');
            for place in 0..rng.below(5) {
                if place > 0 {
                    into.push(b',');
                }
                into.extend_from_slice(rng.pick(&["\"a\":", "\"b\" :", "\"\":", " \"dd\":"]).as_bytes());
                json(rng, depth + 1, into);
            }
            into.push(b'}');
        }
    }
    into.extend_from_slice(space.as_bytes());
}

/// Sometimes damages a valid text by removing or inserting a part.
fn damaged(rng: &mut Rng, mut text: Vec<u8>) -> Vec<u8> {
    if text.is_empty() || !rng.one_in(3) {
        return text;
    }
    let at = rng.below(text.len());
    match rng.below(3) {
        0 => text.truncate(at),
        1 => drop(text.remove(at)),
        _ => text.insert(at, rng.pick(b"{}[],:\"\\-+ 019tfnNI\0\xff")),
    }
    text
}

pub(crate) fn json_in(rng: &mut Rng) -> Case {
    let mut text = Vec::new();
    json(rng, 0, &mut text);
    // Both servers refuse invalid JSON, in their own words: `docs/scripts.md`.
    Case { code: "return cjson.decode(ARGV[1])".to_owned(), args: vec![text] }
}

pub(crate) fn pack_out(rng: &mut Rng) -> Case {
    let count = rng.pick(&[0, 1, 1, 1, 1, 2, 3]);
    let values = list(rng, count, value);
    let code = match rng.below(3) {
        0 => format!("return cmsgpack.unpack(cmsgpack.pack({values}))"),
        _ => format!("return cmsgpack.pack({values})"),
    };
    Case { code, args: Vec::new() }
}

fn packed(rng: &mut Rng, depth: usize, into: &mut Vec<u8>) {
    const NUMBERS: &[(u8, usize)] = &[
        (0xca, 4),
        (0xcb, 8),
        (0xcc, 1),
        (0xcd, 2),
        (0xce, 4),
        (0xcf, 8),
        (0xd0, 1),
        (0xd1, 2),
        (0xd2, 4),
        (0xd3, 8),
    ];
    let len = rng.below(4);
    let headed = |into: &mut Vec<u8>, form: usize, short: u8, long: [u8; 3]| match form {
        0 => into.push(short | len as u8),
        1 if long[0] != 0 => into.extend_from_slice(&[long[0], len as u8]),
        1 | 2 => into.extend_from_slice(&[long[1], 0, len as u8]),
        _ => into.extend_from_slice(&[long[2], 0, 0, 0, len as u8]),
    };
    let form = rng.below(4);
    match rng.below(if depth > 4 { 8 } else { 12 }) {
        0 => into.push(rng.below(128) as u8),
        1 => into.push(0xe0 | rng.below(32) as u8),
        2 => into.push(rng.pick(&[0xc0, 0xc2, 0xc3])),
        3 => into.push(if rng.one_in(8) { rng.below(256) as u8 } else { 1 }),
        4 | 5 => {
            let (head, len) = rng.pick(NUMBERS);
            into.push(head);
            into.extend((0..len).map(|_| rng.pick(&[0, 1, 63, 64, 127, 128, 191, 255])));
        }
        6 | 7 => {
            headed(into, form, 0xa0, [0xd9, 0xda, 0xdb]);
            into.extend((0..len).map(|_| rng.below(256) as u8));
        }
        8 | 9 => {
            headed(into, form, 0x90, [0, 0xdc, 0xdd]);
            (0..len).for_each(|_| packed(rng, depth + 1, into));
        }
        _ => {
            headed(into, form, 0x80, [0, 0xde, 0xdf]);
            for _ in 0..len {
                if rng.one_in(4) {
                    packed(rng, depth + 1, into);
                } else {
                    into.extend_from_slice(&[0xa1, b'a' + rng.below(4) as u8]);
                }
                packed(rng, depth + 1, into);
            }
        }
    }
}

pub(crate) fn pack_in(rng: &mut Rng) -> Case {
    let mut data = Vec::new();
    (0..rng.below(4)).for_each(|_| packed(rng, 0, &mut data));
    let data = damaged(rng, data);
    const OFFSETS: &[&str] =
        &["", ", 0", ", 1", ", 2", ", 5", ", -1", ", nil", ", '1'", ", {}", ", 1.7", ", 2^32"];
    let code = match rng.below(4) {
        0 | 1 => "return cmsgpack.unpack(ARGV[1])".to_owned(),
        2 => format!("return cmsgpack.unpack_one(ARGV[1]{})", rng.pick(OFFSETS)),
        _ => {
            format!("return cmsgpack.unpack_limit(ARGV[1]{}{})", rng.pick(OFFSETS), rng.pick(&OFFSETS[..6]))
        }
    };
    Case { code, args: vec![data] }
}

/// Values as the bytes of a C struct, and back; a third of the formats has a damaged part.
pub(crate) fn structs(rng: &mut Rng) -> Case {
    const OPTIONS: &[&str] = &[
        "b", "B", "h", "H", "l", "L", "T", "i", "I", "f", "d", "x", "s", "c0", "c", "c3", "i1", "I3", "i5",
        "i8", "I9", "I16", "I32", "<", ">", "!", "!2", "!4", "!16", " ", "Lc0", "Bc0", "\\0",
    ];
    const DAMAGED: &[&str] =
        &["i33", "i99999999999", "!3", "!0", "z", "4", "%", "c9999999999", "c200", "\\255", "i0", "I0", "Q"];
    let count = rng.below(7);
    let mut format: String = (0..count).map(|_| rng.pick(OPTIONS)).collect();
    if rng.one_in(3) {
        format += rng.pick(DAMAGED);
    }
    let code = match rng.below(5) {
        0 => format!("return struct.size('{format}')"),
        1 => format!("return struct.unpack('{format}', ARGV[1])"),
        2 => {
            let offset = rng.pick(&["1", "2", "3", "0", "-1", "-7", "'4'", "nil", "{}", "2^53", "2.7"]);
            format!("return struct.unpack('{format}', ARGV[1], {offset})")
        }
        // Mostly what the format wants: a text for c and s, a number for the others.
        _ => {
            let wants = format.chars().filter(char::is_ascii_alphabetic);
            let values: Vec<String> = wants
                .map(|option| match option {
                    _ if rng.one_in(12) => value(rng),
                    'c' | 's' => rng.pick(&["ARGV[1]", "'abc'", "''", "12.5"]).to_owned(),
                    _ => number(rng),
                })
                .collect();
            let call = std::iter::once(format!("'{format}'")).chain(values).collect::<Vec<_>>().join(", ");
            match rng.below(3) {
                0 => format!("return struct.unpack('{format}', struct.pack({call}))"),
                _ => format!("return struct.pack({call})"),
            }
        }
    };
    Case { code, args: vec![bytes(rng, 40)] }
}

const TEXTS: &[&str] = &[
    "''", "'a'", "'hello world'", "'key:123:456'", "'a,b,,c'", "'%1 %% \\0 x'", "('ab'):rep(40)",
    "('x'):rep(700)", "12.5", "ARGV[1]",
];
const PATTERNS: &[&str] = &[
    "''", "'l'", "'.'", "'%w+'", "'^%w'", "'(%d)(%d*)'", "'()'", "'x*'", "'(a)(b)'", "'[^,]*'", "'$'",
    "'%s*$'", "'(.-)%s'", "'%b()'", "'%f[%w]'", "'[a'", "'%'", "'('", "')'", "'a\\0b'", "ARGV[2]", "7",
];
const REPLACEMENTS: &[&str] = &[
    "''",
    "'<%0>'",
    "'%1'",
    "'%2'",
    "'%'",
    "5",
    "{}",
    "{l = 'L', x = 1, a = false, ['12'] = true}",
    "{h = {}}",
    "setmetatable({}, {__index = function(_, key) return key .. key end})",
    "function(...) return select('#', ...) end",
    "function(all, second) return second end",
    "function(found) return ('<'):rep(30) .. found end",
    "function() end",
    "function() return {} end",
    "function(found) error('no ' .. found) end",
    "function(found) error({found}) end",
    "function(found) return (found:gsub('%w', {l = '1'})) end",
    "function(found) return redis.call('echo', found) end",
    "string.upper",
    "nil",
    "true",
];

/// A search, or a replacement of its matches.
pub(crate) fn searches(rng: &mut Rng) -> Case {
    let (text, pattern) = (rng.pick(TEXTS), rng.pick(PATTERNS));
    let start = if rng.one_in(3) { format!(", {}", number(rng)) } else { String::new() };
    let code = match rng.below(8) {
        0 => format!("return string.find({text}, {pattern}{start})"),
        1 => format!("return string.match({text}, {pattern}{start})"),
        2 => format!(
            "local t = {{}} for a, b in string.gmatch({text}, {pattern}) do t[#t + 1] = {{a, b}} end return t"
        ),
        3 => format!("return string.rep({text}, {})", rng.below(40)),
        // Not returned at once: a tail call hides the line from a function written in Lua.
        _ => format!(
            "local text, count = string.gsub({text}, {pattern}, {}{start}) return text, count",
            rng.pick(REPLACEMENTS)
        ),
    };
    Case { code, args: vec![bytes(rng, 12), b"l".to_vec()] }
}

const RAISED: &[&str] = &[
    "error('text')",
    "error('text', 0)",
    "error('text', 2)",
    "error({err = 'ERR a reply'})",
    "error({'a table'})",
    "error(nil)",
    "error(12)",
    "error(false)",
    "error(nil, 2)",
    "redis.call('get')",
    "redis.call('incr', 'KEY', 1)",
    "local t = nil; return t.x",
    "return 1, nil, 'three'",
    "return ('x'):rep(3, 4), #ARGV",
    "string.rep()",
    "('x'):gsub('x', function() error('inner') end)",
    "pcall(error, 'x') return pcall(error)",
    "return xpcall(error, function(found) return {found} end)",
];
const TABLES: &[&str] = &[
    "{}",
    "{1, 2, 3}",
    "{a = 1}",
    "setmetatable({}, {__index = {a = 5}, __metatable = 'shown'})",
    "setmetatable({7}, {__newindex = function() error('set') end})",
    "'text'",
    "5",
    "nil",
];

/// Caught errors, and functions that read tables.
pub(crate) fn basics(rng: &mut Rng) -> Case {
    let (raised, table) = (rng.pick(RAISED), rng.pick(TABLES));
    let key = rng.pick(&["1", "2", "'a'", "nil", "0/0", "'none'"]);
    let code = match rng.below(12) {
        0 | 1 => format!("return pcall(function() {raised} end)"),
        2 => format!(
            "return xpcall(function() {raised} end, function(found) return {{{{found}}}}, type(found) end)"
        ),
        3 => format!("return xpcall(function() {raised} end, function(found) {raised} end)"),
        4 => format!(
            "return xpcall(function() {raised} end, {})",
            rng.pick(&["function(found) return found end", "nil", "5", "type"])
        ),
        5 => format!("return pcall(pcall, function() {raised} end)"),
        6 => format!("local t = {table} return (rawget(t, {key}))"),
        7 => format!("local t = {table} return rawset(t, {key}, 9), rawget(t, {key})"),
        8 => format!("local key, value = next({table}, {key}) return key, value"),
        9 => format!("local t = {{}} for key, value in pairs({table}) do t[key] = value end return t"),
        10 => format!("local found = getmetatable({table}) return found"),
        _ => {
            let draws =
                rng.pick(&["", "9", "3, 5", "5, 3", "-4, 4", "0", "'7'", "1, 2, 3", "2^31", "-2^31, 2^40"]);
            let seed =
                rng.pick(&["0", "7", "-1", "3.7", "'9'", "2^31", "2^63", "2^64", "-2^70", "0/0", "1e300"]);
            format!("math.randomseed({seed}) return math.random({draws}), math.random()")
        }
    };
    Case { code, args: Vec::new() }
}

/// Functions that take places, sizes and bases. Those that would move values for minutes in Redis are left out.
pub(crate) fn places(rng: &mut Rng) -> Case {
    const CALLS: &[&str] = &[
        "unpack({1, 2, 3}, ", "select(", "tonumber('z1', ", "tonumber(", "string.byte('hello', ",
        "string.char(", "string.sub('hello', ", "table.concat({1, 2, 3}, ',', ", "table.remove({1, 2, 3}, ",
        "math.ldexp(3, ", "math.frexp(", "string.rep('ab', ", "string.format('%d %s', ",
        "string.format('%5.1f|%x', ",
    ];
    let (call, count) = (rng.pick(CALLS), rng.pick(&[0, 1, 1, 2, 2, 3]));
    let code = match call {
        // Longer results than the server of a test should send.
        "string.rep('ab', " => format!("return #{call}{} % 100)", number(rng)),
        // Not returned at once: a tail call hides the line from a function written in Lua.
        _ => format!("local a, b, c = {call}{}) return a, b, c", list(rng, count, number)),
    };
    Case { code, args: Vec::new() }
}
