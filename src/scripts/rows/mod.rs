//! The rows that are written out: scripts of one client each, or of a form that the spellings do not combine.
//!
//! Owns    the lists, one file per purpose.
//! Knows   programs as data. A row is its own documentation: the text, who sends it, what is run.

mod acquire;
mod extend;
mod prelude;
mod read;
mod release;
mod several;

use super::table::Row;

/// The lists, in the order in which a lock is lived through.
pub(super) const ROWS: &[&[Row]] = &[acquire::ROWS, extend::ROWS, release::ROWS, read::ROWS, several::ROWS];
