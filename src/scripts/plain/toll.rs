//! How much a plain script does, with its loops as often as its KEYS and ARGV can make them run.
//!
//! Rule    a list that the script makes is as long as the loops before it can make it: how often a loop over one runs
//!         follows from those.

use super::value::number;
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
    /// As often as these of ARGV say, counted from 1; 0: none.
    pub(super) named: [u16; 2],
}

impl Turns {
    /// It runs as often as one of ARGV says, beside all else; `None` where too many do already.
    pub(super) fn name(&mut self, place: u16) -> Option<()> {
        *self.named.iter_mut().find(|named| **named == 0)? = place;
        Some(())
    }

    /// How often that is at most.
    fn most(&self, inputs: Inputs<'_>, elements: u64) -> u64 {
        let given = inputs.keys.len().max(inputs.args.len()) as u64;
        let named = |place: &u16| {
            let word = inputs.args.get(usize::from(place.checked_sub(1)?))?;
            number(word).map(|turns| turns.abs().ceil() as u64)
        };
        let named: u64 = self.named.iter().filter_map(named).fold(0, u64::saturating_add);
        let listed = self.own.saturating_mul(elements);
        (self.said + self.inputs * given).saturating_add(named).saturating_add(listed)
    }
}

/// The most KEYS, and the most ARGV, of a call to a script that has a loop, and the largest number that may bound one.
pub(super) const TURNS_MAX: usize = 1_000;
/// Values that a script may look at beside receiving them, and nobody notices.
const LITTLE: u64 = 64;
/// The most loops of a script, those of its functions counted wherever one is called.
pub(super) const LOOPS_MAX: usize = 64;

impl Toll {
    /// Whether it does so little with each of KEYS and ARGV that their length does not count beside receiving them.
    pub(super) fn is_little(&self) -> bool {
        self.loops.is_empty()
            && self.once.spread == Spread::None
            && self.once.inputs + self.once.texts <= LITTLE
    }

    /// What it comes to with these KEYS and ARGV.
    pub(super) fn effort(&self, inputs: Inputs<'_>) -> Effort {
        let (mut total, mut elements) = (self.once, self.inserts);
        for Loop { turns, effort, inserts, accumulates } in &self.loops {
            let turns = turns.most(inputs, elements);
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
