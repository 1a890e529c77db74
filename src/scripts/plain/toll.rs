//! How much a plain script does, with its loops as often as its KEYS and ARGV can make them run.
//!
//! Rule    a list that the script makes is as long as the loops before it can make it: how often a loop over one runs
//!         follows from those.

use crate::scripts::Inputs;
use crate::scripts::effort::{Effort, Spread};

/// What a script, or a function of it, does at most.
#[derive(Clone, Debug, Default)]
pub(super) struct Toll {
    /// Outside of its loops.
    pub(super) once: Effort,
    /// Elements that it adds to lists there.
    pub(super) inserts: u64,
    /// Its loops, in the order in which they run.
    pub(super) loops: Vec<Loop>,
}

/// A loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loop {
    /// What says how often it runs.
    pub(super) turns: Turns,
    /// What it does in a turn.
    pub(super) effort: Effort,
    /// Elements that it adds to lists in a turn.
    pub(super) inserts: u64,
    /// Whether a text may grow from turn to turn.
    pub(super) accumulates: bool,
}

/// How often a loop runs: the sum of these.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    /// Numbers of the script's text.
    pub(super) said: u64,
    /// Once for each of KEYS, or of ARGV; how often that counts.
    pub(super) inputs: u64,
    /// Once for each element of a list of the script's own; how often that counts.
    pub(super) own: u64,
    /// As often as one of ARGV says; how many of them do.
    pub(super) named: u64,
}

/// The most KEYS, and the most ARGV, of a call to a script that has a loop, and the largest number that may bound one.
pub(super) const TURNS_MAX: usize = 1_000;
/// Values that a script may look at beside receiving them, and nobody notices.
const LITTLE: u64 = 64;
/// The most loops of a script, those of its functions counted wherever one is called.
pub(super) const LOOPS_MAX: usize = 64;

impl Toll {
    /// Whether it does so little with each of KEYS and ARGV that their length does not count beside receiving them.
    #[inline]
    pub(super) fn is_little(&self) -> bool {
        self.loops.is_empty()
            && self.once.spread == Spread::None
            && self.once.inputs + self.once.texts <= LITTLE
    }

    /// What it comes to with these KEYS and ARGV.
    pub(super) fn effort(&self, inputs: Inputs<'_>) -> Effort {
        let given = inputs.keys.len().max(inputs.args.len()) as u64;
        let (mut total, mut elements) = (self.once, self.inserts);
        for Loop { turns, effort, inserts, accumulates } in &self.loops {
            let lists = turns.own.saturating_mul(elements);
            let turns =
                (turns.said + turns.inputs * given + turns.named * TURNS_MAX as u64).saturating_add(lists);
            let all = effort.times(turns);
            // What each turn joins anew is no longer than what one joins.
            let grown = if *accumulates { &all } else { effort };
            total = total.with(Effort { joints: grown.joints, gathers: grown.gathers, ..all });
            elements = elements.saturating_add(turns.saturating_mul(*inserts));
        }
        total.inputs = total.inputs.saturating_add(if total.spread == Spread::None { 0 } else { elements });
        total
    }
}
