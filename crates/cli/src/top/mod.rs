//! `redlatch top`: the locks of a running server on the terminal.
//!
//! Rule    what is shown is a function of what was asked (`view` of `state`); only `screen` knows a terminal and the time.

mod sample;
mod screen;
mod state;
mod view;

pub(super) use screen::show;
