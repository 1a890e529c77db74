//! The law of native scripts: native and interpreted runs are equal.
//!
//! Owns    small random states of a few keys, and two engines that start from equal states.
//! Rule    a leading statement without effect, which no native script has, sends a script to the interpreter.

use redlatch_core::scripts::Inputs;
use redlatch_core::scripts::native::Program;

use super::draw::Draw;
use super::runner::{ScriptRunner, interpreted};
use super::{collected, mutate};
use crate::support::shapes::shapes;

/// Two engines: one runs the script natively, the other interprets it.
struct Pair {
    native: ScriptRunner,
    interpreted: ScriptRunner,
    draw: Draw,
    cases: usize,
    drawn: usize,
}

impl Pair {
    fn new() -> Self {
        Self {
            native: ScriptRunner::new(),
            interpreted: ScriptRunner::new(),
            draw: Draw::new(),
            cases: 0,
            drawn: 0,
        }
    }

    /// Runs a native script in both engines from many random states.
    fn compare(&mut self, script: &str, turns: usize) {
        let program = Program::read(script.as_bytes()).expect("a native script");
        let interpreted = interpreted(script.as_bytes());
        let keys: [&[u8]; 5] = [b"k1", b"k2", b"k3", b"k4", b"k5"];
        for _ in 0..turns {
            let keys = &keys[..1 + self.draw.below(keys.len())];
            let args = self.draw.args(script);
            let state = self.draw.state(keys);
            self.drawn += 1;
            let inputs = Inputs::new(keys, &args);
            if !program.fits(inputs) {
                continue;
            }
            self.cases += 1;
            let expected = self.interpreted.run(&state, &interpreted, keys, &args);
            let seen = self.native.run(&state, script.as_bytes(), keys, &args);
            let args: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
            let state: Vec<_> =
                state.iter().map(|words| words.join(&b' ').escape_ascii().to_string()).collect();
            assert_eq!(seen, expected, "{script}\n  {state:?}\n  {} keys, {args:?}", keys.len());
        }
    }

    fn assert_each_ran_in_its_own_way(&self) {
        assert_eq!(self.native.interpreter_bytes(), 0, "a native script was interpreted");
        assert!(self.interpreted.interpreter_bytes() > 0, "nothing was interpreted");
    }
}

/// `SEED=17 cargo test --test suite native_scripts_and` runs the cases of seed 17.
#[test]
fn native_scripts_and_the_interpreter_do_the_same() {
    let mut pair = Pair::new();
    for (_, script) in shapes() {
        pair.compare(&script, 60);
    }
    for script in
        collected().unwrap_or_default().into_values().filter_map(|text| String::from_utf8(text).ok())
    {
        if Program::read(script.as_bytes()).is_some() {
            pair.compare(&script, 30);
        }
    }
    assert!(pair.cases >= 4_000 && 2 * pair.cases > pair.drawn, "{} cases of {}", pair.cases, pair.drawn);
    pair.assert_each_ran_in_its_own_way();
}

/// A mutated lock script still behaves as in Lua, and a text that Lua refuses is not native.
#[test]
fn mutations_that_are_native_do_what_lua_does() {
    let mut pair = Pair::new();
    let every = if std::env::var_os("EVERY_MUTATION").is_some() { 1 } else { 12 };
    let (mut native, mut at) = (0, pair.draw.below(every));
    for (_, script) in shapes() {
        for mutated in mutate::all(&script) {
            at += 1;
            if !at.is_multiple_of(every) || Program::read(mutated.as_bytes()).is_none() {
                continue;
            }
            native += 1;
            let spread = spread(&mut pair.draw, &mutated);
            pair.compare(&spread, 2);
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
    let mut pair = Pair::new();
    let blocks = || BLOCKS.iter().flat_map(|then| BLOCKS.iter().map(move |otherwise| (then, otherwise)));
    for test in TESTS {
        for ((then, otherwise), behind) in blocks().flat_map(|pair| BLOCKS.map(|behind| (pair, behind))) {
            let change = CHANGES[pair.draw.below(CHANGES.len())];
            let script = format!("{test} then {then} else {otherwise} end {behind}");
            pair.compare(&script.replace("CHANGE", change), 6);
        }
    }
    assert!(2 * pair.cases > pair.drawn, "{} cases of {}", pair.cases, pair.drawn);
    pair.assert_each_ran_in_its_own_way();
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
