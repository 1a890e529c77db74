//! The `redlatch` binary. It holds no logic: see [`redlatch`].

fn main() {}
