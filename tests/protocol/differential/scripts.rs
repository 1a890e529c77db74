//! Lua scripts: small ones around generated requests, and those of lock clients.

use sha1::{Digest, Sha1};

use super::grammar::Words;
use crate::support::rng::Rng;

/// Scripts that return the reply of a request: converted to Lua and back, with every way to raise an error.
const AROUND_ONE: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "return {redis.pcall(unpack(ARGV))}",
    "local r = redis.pcall(unpack(ARGV)) return type(r)",
    "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' then return {r.err or r.ok or #r, 1} end return tostring(r)",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
    "redis.setresp(3) local r = redis.pcall(unpack(ARGV)) return type(r)",
    "local ok, e = pcall(redis.call, unpack(ARGV)) return ok and 1 or type(e)",
    "local ok, e = pcall(redis.call, unpack(ARGV)) if ok then return e end return {err = e.err or e}",
    "\n\nredis.call(unpack(ARGV))\nreturn redis.call('get', 'k0')",
    "return cjson.encode(redis.pcall('exists', ARGV[2]))",
    "return redis.sha1hex(tostring(redis.pcall('type', ARGV[2]).ok))",
];

/// Conversions without a request. `error({1})` is left out: it ends the process of Redis 7.0.
const ALONE: &[&str] = &[
    "return {1, 2.9, -2.9, 'x', true, false, nil, 3}",
    "return {1, {2, {3, {}}}, {ok = 'FINE'}, {err = 'My Err'}}",
    "return {err = 'MY own error'}",
    "return {err = 'short'}",
    "return {ok = 'a\\nb'}",
    "return redis.error_reply('boom')",
    "return redis.error_reply('-MINE boom')",
    "return redis.status_reply('fine')",
    "redis.setresp(3) return {double = 1.5}",
    "return {double = 3.25}",
    "return {map = {a = 1}}",
    "return {set = {a = true}}",
    "return 1e15",
    "return -1e15",
    "return 0/0",
    "return 2^53",
    "return tostring(1e15)",
    "return tostring(0.1)",
    "return {KEYS[1], ARGV[1], #KEYS, #ARGV}",
    "return nil",
    "return",
    "error('mine')",
    "error({err = 'TABLE error'})",
    "return nothing.here",
    "undeclared = 1",
    "return undeclared",
    "return redis.call()",
    "return redis.call({})",
    "return redis.pcall('nosuch', 1)",
    "return redis.call('get')",
    "return redis.call('multi')",
    "return redis.call('set', 'k0', 1.5)",
    "return redis.call('set', 'k0', 1e20)",
    "return redis.call('get', 'k0')",
    "return string.format('%q', 'a\\0b')",
    "return cjson.encode({1, 'a', {b = 2.5}})",
    "return cjson.decode('[1, 2.5, null, true, {\"a\": []}]')",
    "return bit.bxor(5, 1)",
    "return cmsgpack.pack({1, 'a'})",
    "syntax error",
    "#!lua flags=no-writes\nreturn redis.call('set', 'k0', 1)",
    "#!lua flags=no-such\nreturn 1",
];

/// A request that runs a script, and the words of the request inside it, if any.
pub(crate) fn around(inner: &Words, rng: &mut Rng) -> Words {
    let name: &[u8] = if rng.one_in(8) { b"EVAL_RO" } else { b"EVAL" };
    let (head, tail) = match rng.below(3) {
        0 => (literal(inner), Vec::new()),
        _ => (rng.pick(AROUND_ONE).as_bytes().to_vec(), inner.clone()),
    };
    let mut words = vec![name.to_vec(), head, b"0".to_vec()];
    words.extend(tail);
    words
}

/// A script by its SHA-1, which the server may or may not know; or a request that loads or flushes scripts.
pub(crate) fn by_sha1(inner: &Words, rng: &mut Rng) -> Words {
    let text = if rng.one_in(3) { rng.pick(ALONE) } else { rng.pick(AROUND_ONE) };
    let mut sha1 = sha1_hex(text);
    if rng.one_in(6) {
        sha1.make_ascii_uppercase();
    }
    let head: Vec<&[u8]> = match rng.below(12) {
        0..3 => return spell(&[b"SCRIPT", b"LOAD", text.as_bytes()]),
        3 => return spell(&[b"SCRIPT", b"EXISTS", sha1.as_bytes(), b"nobody"]),
        4 if rng.one_in(4) => return spell(&[b"SCRIPT", b"FLUSH"]),
        5 if rng.one_in(4) => return spell(&[b"SCRIPT", rng.pick(&[b"KILL" as &[u8], b"LOAD", b"junk"])]),
        6 => vec![b"EVALSHA", b"no-such-script", b"0"],
        7 => vec![b"EVALSHA_RO", sha1.as_bytes(), b"0"],
        _ => vec![b"EVALSHA", sha1.as_bytes(), b"0"],
    };
    let mut words = spell(&head);
    words.extend(inner.iter().cloned());
    words
}

fn spell(words: &[&[u8]]) -> Words {
    words.iter().map(|word| word.to_vec()).collect()
}

fn sha1_hex(text: &str) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A script without an inner request.
pub(crate) fn alone(rng: &mut Rng) -> Words {
    let keys = [b"0" as &[u8], b"1", b"2", b"3", b"-1", b"x"];
    let count = if rng.one_in(3) { rng.pick(&keys) } else { b"1" };
    let words: [&[u8]; 5] = [b"EVAL", rng.pick(ALONE).as_bytes(), count, b"k0", b"an argument"];
    words.map(<[u8]>::to_vec).to_vec()
}

/// A script of a lock client, with keys and arguments that may fit.
pub(crate) fn of_clients(texts: &[String], rng: &mut Rng) -> Words {
    let text = &texts[rng.below(texts.len())];
    let keys = 1 + rng.below(3);
    let mut words = vec![b"EVAL".to_vec(), text.as_bytes().to_vec(), keys.to_string().into_bytes()];
    for _ in 0..keys {
        words.push(rng.pick(&[b"k0", b"k1", b"n0", b"h0"]).to_vec());
    }
    let numbers: &[&[u8]] =
        if counts_to_an_argument(text) { &[b"2", b"3"] } else { &[b"100000000", b"300000000"] };
    let arguments = [&[b"me" as &[u8], b"you", b"0", b"x", b""], numbers].concat();
    for _ in 0..rng.below(5) {
        words.push(rng.pick(&arguments).to_vec());
    }
    words
}

/// Whether a script loops as often as an argument says, which could keep real servers busy for minutes. Scripts that loop
/// over their keys or arguments do not, and would take a small number for a lease that ends at once.
fn counts_to_an_argument(text: &str) -> bool {
    let counts = |head: &str| {
        let mut words = head.split_whitespace().take_while(|word| *word != "do");
        words.clone().any(|word| word == "=") && !words.any(|word| word.starts_with('#'))
    };
    text.contains("tonumber(ARGV") && text.split("for ").skip(1).any(counts)
}

/// The request as Lua source.
fn literal(inner: &Words) -> Vec<u8> {
    let mut text = String::from("local r = redis.call(");
    for (at, word) in inner.iter().enumerate() {
        let quoted: String = word.iter().map(|byte| format!("\\{byte:03}")).collect();
        text.push_str(&format!("{}'{quoted}'", if at == 0 { "" } else { ", " }));
    }
    text.push_str(")\nreturn r");
    text.into_bytes()
}
