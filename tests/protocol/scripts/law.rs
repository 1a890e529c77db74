//! The law of native scripts: native and interpreted runs are equal.
//!
//! Owns    two engines that start from equal states.
//! Rule    a leading statement without effect, which no native script has, sends a script to the interpreter.

use redlatch_core::scripts::Inputs;
use redlatch_core::scripts::native::Program;

use super::draw::Draw;
use super::runner::{ScriptRunner, interpreted};
use super::{collected, mutate};
use crate::support::shapes::shapes;

/// Two engines: one runs scripts natively, the other interprets them.
pub(crate) struct Pair {
    native: ScriptRunner,
    interpreted: ScriptRunner,
    /// Runs that were compared, and those that were drawn.
    pub(crate) cases: usize,
    drawn: usize,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self { native: ScriptRunner::new(), interpreted: ScriptRunner::new(), cases: 0, drawn: 0 }
    }

    /// Runs a native script and, by Lua, another text from many random states.
    pub(crate) fn compare(&mut self, script: &[u8], other: &[u8], turns: usize, draw: &mut Draw) {
        let program = Program::read(script).expect("a native script");
        let interpreted = interpreted(other);
        let loaded = self.interpreted.send(&[b"SCRIPT", b"LOAD", &interpreted]);
        assert!(loaded.starts_with(b"$40\r\n"), "read as native, and Lua says: {}", loaded.escape_ascii());
        let keys: [&[u8]; 5] = [b"k1", b"k2", b"k3", b"k4", b"k5"];
        for _ in 0..turns {
            let keys = &keys[..1 + draw.below(keys.len())];
            let args = draw.args(&String::from_utf8_lossy(script));
            let state = draw.state(keys);
            self.drawn += 1;
            if !program.fits(Inputs::new(keys, &args)) {
                continue;
            }
            let expected = self.interpreted.run(&state, &interpreted, keys, &args);
            let seen = self.native.run(&state, script, keys, &args);
            // An address, and any result that depends on one, differs from run to run.
            if format!("{expected:?}").contains("table: 0x") {
                continue;
            }
            self.cases += 1;
            let shown = |words: &[&[u8]]| words.join(&b' ').escape_ascii().to_string();
            let state: Vec<_> =
                state.iter().map(|words| words.join(&b' ').escape_ascii().to_string()).collect();
            let script = script.escape_ascii();
            assert_eq!(seen, expected, "{script}\n  {state:?}\n  {} keys, {}", keys.len(), shown(&args));
        }
        assert_eq!(self.native.interpreter_bytes(), 0, "a native script was interpreted");
        assert!(self.interpreted.interpreter_bytes() > 0, "nothing was interpreted");
    }
}

/// `SEED=17 cargo test --test suite native_scripts_and` runs the cases of seed 17.
#[test]
fn native_scripts_and_the_interpreter_do_the_same() {
    let (mut pair, mut draw) = (Pair::new(), Draw::new());
    for (_, script) in shapes() {
        pair.compare(script.as_bytes(), script.as_bytes(), 60, &mut draw);
    }
    for script in collected().unwrap_or_default().into_values() {
        if Program::read(&script).is_some() {
            pair.compare(&script, &script, 30, &mut draw);
        }
    }
    assert!(pair.cases >= 4_000 && 2 * pair.cases > pair.drawn, "{} cases of {}", pair.cases, pair.drawn);
}

/// A mutated lock script still behaves as in Lua, and a text that Lua refuses is not native.
#[test]
fn mutations_that_are_native_do_what_lua_does() {
    let (mut pair, mut draw) = (Pair::new(), Draw::new());
    let every = if std::env::var_os("EVERY_MUTATION").is_some() { 1 } else { 12 };
    let (mut native, mut at) = (0, draw.below(every));
    for (_, script) in shapes() {
        for mutated in mutate::all(&script) {
            at += 1;
            if !at.is_multiple_of(every) || Program::read(mutated.as_bytes()).is_none() {
                continue;
            }
            native += 1;
            let spread = spread(&mut draw, &mutated);
            pair.compare(spread.as_bytes(), spread.as_bytes(), 2, &mut draw);
        }
    }
    assert!(native >= 500, "{native} mutations were native");
}

/// Every wording of "change the key if it holds a value" that is recognized has exactly that meaning.
#[test]
fn every_wording_of_release_and_extend_does_what_lua_does() {
    const TESTS: [&str; 5] = [
        "if redis.call('get', KEYS[1]) == ARGV[1]",
        "if redis.call('get', KEYS[1]) ~= ARGV[1]",
        "local x = redis.call('get', KEYS[1]) if x == ARGV[1]",
        "local x = redis.call('get', KEYS[1]) if x ~= ARGV[1]",
        "local x = redis.call('get', KEYS[1]) if not x or x ~= ARGV[1]",
    ];
    const BLOCKS: [&str; 5] = ["", "return 0", "return CHANGE", "CHANGE", "CHANGE return true"];
    const CHANGES: [&str; 2] = ["redis.call('del', KEYS[1])", "redis.call('pexpire', KEYS[1], ARGV[2])"];
    let (mut pair, mut draw) = (Pair::new(), Draw::new());
    let blocks = || BLOCKS.iter().flat_map(|then| BLOCKS.iter().map(move |otherwise| (then, otherwise)));
    for test in TESTS {
        for ((then, otherwise), behind) in blocks().flat_map(|pair| BLOCKS.map(|behind| (pair, behind))) {
            let change = CHANGES[draw.below(CHANGES.len())];
            let script =
                format!("{test} then {then} else {otherwise} end {behind}").replace("CHANGE", change);
            pair.compare(script.as_bytes(), script.as_bytes(), 6, &mut draw);
        }
    }
    assert!(2 * pair.cases > pair.drawn, "{} cases of {}", pair.cases, pair.drawn);
}

/// The script on several lines, because errors name lines. Lua requires a call's parenthesis on the line of its function.
fn spread(draw: &mut Draw, script: &str) -> String {
    let mut spread = String::new();
    for token in mutate::tokens(script) {
        let is_apart = !spread.is_empty() && token != "(" && draw.below(4) == 0;
        spread.push(if is_apart { '\n' } else { ' ' });
        spread.push_str(token);
    }
    spread
}
