//! Channels: SUBSCRIBE, PUBLISH and their kind.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
