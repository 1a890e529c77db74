//! The parts of the differential test: what is sent, to whom, and how replies may differ.

pub(crate) mod campaign;
mod dice;
mod grammar;
mod plan;
mod relaxed;
mod scripts;
mod words;
mod world;
