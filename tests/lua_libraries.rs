//! bit, cjson, cmsgpack, searches and what catches errors, under random values: by EVAL on redlatch and on a real
//! Redis, the same bytes.
//!
//! Belongs here  what no transcript of these functions thought of.
//! Real server   where `REDLATCH_REDIS_SERVER` names its program; without it the runs say that they were skipped.
//! Bounds        `CASES` for a longer run of each library; `SEED=17 cargo test --test lua_libraries` for other cases.
#![cfg(feature = "lua")]

// Each is made for more than is needed here.
#[path = "lua_libraries/cases.rs"]
mod cases;
#[allow(dead_code)]
#[path = "differential/dice.rs"]
mod dice;
#[path = "lua_libraries/misuse.rs"]
mod misuse;
#[allow(dead_code)]
mod support;

use std::path::Path;

use cases::Case;
use dice::Dice;
use support::engine::EngineTarget;
use support::real::RealServer;
use support::reply::Reply;
use support::target::{Heard, Link, Patience, Target};

/// Spells every value that a case gives as a string, of tables what is in them in the order of the spellings; a caught
/// error as its text.
const SPELL: &str = r"
local function spell(value, depth)
    local kind = type(value)
    if kind == 'number' then return string.format('%.17g', value) end
    if kind == 'string' then return #value .. ':' .. value end
    if kind == 'function' or kind == 'thread' then return kind end
    if kind ~= 'table' then return tostring(value) end
    if depth > 30 then return 'deep' end
    local items = {}
    for key, item in pairs(value) do
        items[#items + 1] = spell(key, depth + 1) .. '=' .. spell(item, depth + 1)
    end
    table.sort(items)
    return '{' .. table.concat(items, ',') .. '}'
end
local function all(is_fine, ...)
    local values = {tostring(is_fine)}
    for at = 1, select('#', ...) do values[at + 1] = spell((select(at, ...)), 0) end
    return table.concat(values, ' ')
end
";

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn ask(target: &mut dyn Target, link: Link, text: &[u8], args: &[Vec<u8>]) -> Reply {
    let mut words: Vec<&[u8]> = vec![b"EVAL", text, b"0"];
    words.extend(args.iter().map(Vec::as_slice));
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
    target.send(link, &request);
    let mut bytes = Vec::new();
    loop {
        match Reply::read(&bytes) {
            Ok(Some((reply, _))) => return reply,
            Ok(None) => {}
            Err(why) => panic!("{}: {why}", target.name()),
        }
        let heard = target.receive(link, Patience::UntilReply, &mut bytes);
        assert_eq!(heard, Heard::Bytes, "{} says nothing", target.name());
    }
}

fn compare(library: fn(&mut Dice) -> Case) {
    let Some(program) = std::env::var_os("REDLATCH_REDIS_SERVER") else {
        eprintln!("skipped: REDLATCH_REDIS_SERVER is not set");
        return;
    };
    let seed = number("SEED", 1);
    let mut dice = Dice::new(seed);
    let (mut ours, mut theirs) = (EngineTarget::start(), RealServer::start("redis", Path::new(&program)));
    let links = (ours.connect(), theirs.connect());
    for place in 0..number("CASES", 3_000) {
        let Case { code, args } = library(&mut dice);
        let text = format!("{SPELL}\nreturn all(pcall(function() {code} end))");
        let expected = ask(&mut theirs, links.1, text.as_bytes(), &args);
        let found = ask(&mut ours, links.0, text.as_bytes(), &args);
        // `string.dump` is not there: `docs/scripts.md`.
        let expected = expected.spell().replace("4:dump=function,", "");
        assert_eq!(found.spell(), expected, "seed {seed}, case {place}: {code}\n  ARGV {args:?}");
    }
}

#[test]
fn bit_does_what_it_does_in_redis() {
    compare(cases::bit);
}

#[test]
fn cjson_encodes_as_in_redis() {
    compare(cases::json_out);
}

#[test]
fn cjson_decodes_as_in_redis() {
    compare(cases::json_in);
}

#[test]
fn cmsgpack_packs_as_in_redis() {
    compare(cases::pack_out);
}

#[test]
fn cmsgpack_unpacks_as_in_redis() {
    compare(cases::pack_in);
}

#[test]
fn what_is_searched_is_found_and_replaced_as_in_redis() {
    compare(cases::searches);
}

#[test]
fn what_is_raised_is_caught_as_in_redis() {
    compare(cases::basics);
}

#[test]
fn what_is_misused_says_so_as_in_redis() {
    compare(misuse::misuse);
}
