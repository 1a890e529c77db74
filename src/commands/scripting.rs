//! Scripts: EVAL, EVALSHA, SCRIPT.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
