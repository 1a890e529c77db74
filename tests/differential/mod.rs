//! The parts of the differential test: what is sent, to whom, and how replies may differ.

pub(crate) mod campaign;
mod client;
mod dice;
mod draws;
mod grammar;
mod libraries;
mod listening;
mod plan;
mod relaxed;
mod scripts;
mod words;
mod world;
