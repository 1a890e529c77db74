//! The commands of the program that are not the server: beside, doctor, explore, load, mcp, run, take and top.
//!
//! Belongs here  arguments, output, exit codes, and what is left when a command ends.

mod beside;
mod explore;
mod load;
mod mcp;
mod run;
mod shell;
mod statuses;
mod top;
