//! What the server says about itself: COMMAND, CONFIG, INFO, MEMORY, LATENCY, SLOWLOG.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
