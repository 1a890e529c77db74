//! Leases of keys: EXPIRE and its kin, TTL and its kin, PERSIST.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
