//! The vocabulary of redlatch: what its server and its clients both speak.
//!
//! Owns    time and how it is shown, numbers as clients write them, errors and their texts, the bounds of what the network
//!         may send, the terms of locks, and RESP.
//! Rule    pure: no await, socket, file, thread, system clock or randomness.
//!
//! This crate is a part of `redlatch`; any version may change it.

#![forbid(unsafe_code)]

#[warn(missing_docs)]
pub mod certificates;
#[warn(missing_docs)]
pub mod clock;
#[warn(missing_docs)]
pub mod duration;
pub mod error;
pub mod limits;
#[warn(missing_docs)]
pub mod lock;
pub mod log_name;
pub mod markup;
pub mod number;
pub mod options;
pub mod resp;
