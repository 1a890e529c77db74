//! The connection itself: HELLO, AUTH, PING, SELECT and their kind.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
