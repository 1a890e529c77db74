//! An engine with connections, and what comes out of them: what transcripts are played to, without the transcripts.

#[path = "../support/engine.rs"]
pub(crate) mod engine;
#[path = "../support/reply.rs"]
pub(crate) mod reply;
#[path = "../support/target.rs"]
pub(crate) mod target;
#[path = "../support/words.rs"]
pub(crate) mod words;
