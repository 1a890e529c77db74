//! Locks of a server that is no redlatch, by reading them: `redlatch beside` shows them, `redlatch doctor` checks them.
//!
//! Owns    how that server is asked (`observed`), what it tells (`changes`), what there counts as a lock (`recognise`), and
//!         in which order all of it is read (`sweep`).
//! Rule    that server is sent no write command, at most `--rate` requests in a second, and no request whose reply has no
//!         bound.
//! Rule    a password comes from a file or the environment, and is in no message.

mod changes;
mod diagnosis;
mod doctor;
mod flags;
mod login;
mod observed;
mod recognise;
mod report;
mod shadow;
mod sweep;

use crate::common::Subcommand;

pub(crate) const SUBCOMMANDS: &[Subcommand] = &[flags::BESIDE, flags::DOCTOR];
