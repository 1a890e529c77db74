//! CLIENT: what a connection says about itself and others.

use super::row::Row;

pub(super) const ROWS: &[Row] = &[];
