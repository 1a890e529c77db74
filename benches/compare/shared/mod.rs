//! The parts of the race that tests check, too: framing, answers, results, and the text and picture made from them.

pub(crate) mod limit;
pub(crate) mod plot;
pub(crate) mod results;
pub(crate) mod table;
pub(crate) mod wire;
