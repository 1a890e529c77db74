//! The parts of the race that tests check, too: framing, replies, results, and the tables and plot made from them.

pub(crate) mod limit;
pub(crate) mod plot;
pub(crate) mod results;
pub(crate) mod table;
pub(crate) mod wire;
