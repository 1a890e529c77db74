//! The server as a whole: TIME, ROLE, WAIT, DEBUG, SHUTDOWN and their kind.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
