//! bit, cjson, cmsgpack, struct, searches and error handling with random values: the same EVAL on redlatch and on a real
//! Redis gives equal bytes.
//!
//! Belongs here  random cases; single ones are transcripts.
//! Real server   the program that `REDLATCH_REDIS_SERVER` names.
//! Bounds        `CASES` for a longer run of each library, `SEED` for other cases.
mod cases;
mod misuse;

use crate::support::engine::EngineTarget;
use crate::support::real::RealServer;
use crate::support::rng::{Rng, number};
use crate::support::target::Target;
use crate::support::words::request;
use cases::Case;

/// Spells every value of a case as a string; table entries are sorted, errors are their text.
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

fn eval(text: &str, args: &[Vec<u8>]) -> Vec<u8> {
    let mut words: Vec<&[u8]> = vec![b"EVAL", text.as_bytes(), b"0"];
    words.extend(args.iter().map(Vec::as_slice));
    request(&words)
}

fn compare(library: fn(&mut Rng) -> Case) {
    let seed = number("SEED").unwrap_or(1);
    let mut rng = Rng::new(seed);
    let (mut ours, mut theirs) = (EngineTarget::start(), RealServer::start("redis"));
    let links = (ours.connect(), theirs.connect());
    for place in 0..number("CASES").unwrap_or(3_000) {
        let Case { code, args } = library(&mut rng);
        let text = format!("{SPELL}\nreturn all(pcall(function() {code} end))");
        let eval = eval(&text, &args);
        let expected = theirs.ask(links.1, &eval);
        let found = ours.ask(links.0, &eval);
        // redlatch has no `string.dump`: `docs/scripts.md`.
        let expected = expected.spell().replace("4:dump=function,", "");
        assert_eq!(found.spell(), expected, "seed {seed}, case {place}: {code}\n  ARGV {args:?}");
    }
}

#[test]
#[ignore = "needs REDLATCH_REDIS_SERVER"]
fn every_library_answers_as_in_redis() {
    let libraries: [fn(&mut Rng) -> Case; 10] = [
        cases::bit,
        cases::json_out,
        cases::json_in,
        cases::pack_out,
        cases::pack_in,
        cases::structs,
        cases::searches,
        cases::basics,
        cases::places,
        misuse::misuse,
    ];
    libraries.into_iter().for_each(compare);
}
