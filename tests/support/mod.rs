//! What the transcript tests are made of: the format, its patterns, the servers, and the runner.

pub(crate) mod engine;
pub(crate) mod pattern;
pub(crate) mod real;
pub(crate) mod reply;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod target;
pub(crate) mod words;
