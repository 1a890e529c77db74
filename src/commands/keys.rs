//! Keys, whatever they hold: DEL, RENAME, SCAN and their kind.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
