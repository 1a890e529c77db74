//! Which arguments of a command are operands, and which are words of its grammar.
//!
//! Owns    the positions of keys, values and times in the commands that recognised scripts call.
//! Knows   nothing else. A command that is not listed keeps every literal as it is written.

/// The operands of one command.
pub(super) struct Operands {
    name: &'static str,
    /// Arguments 1 to this one are keys, values or times; what follows are options.
    count: usize,
}

impl Operands {
    /// True where this argument, counted from 1 behind the command's name, is an operand.
    pub(super) fn covers(&self, argument: usize) -> bool {
        (1..=self.count).contains(&argument)
    }
}

/// The operands of a command, named in upper case.
pub(super) fn of(command: &[u8]) -> Option<&'static Operands> {
    COMMANDS.iter().find(|known| known.name.as_bytes() == command)
}

/// True for an option, in upper case, whose next argument is an operand.
pub(super) fn takes_value(option: &[u8]) -> bool {
    matches!(option, b"EX" | b"EXAT" | b"PX" | b"PXAT")
}

const ALL: usize = usize::MAX;

const COMMANDS: [Operands; 23] = [
    Operands { name: "DECR", count: 1 },
    Operands { name: "DEL", count: ALL },
    Operands { name: "EXISTS", count: ALL },
    Operands { name: "EXPIRE", count: 2 },
    Operands { name: "EXPIREAT", count: 2 },
    Operands { name: "GET", count: 1 },
    Operands { name: "GETSET", count: 2 },
    Operands { name: "INCR", count: 1 },
    Operands { name: "LPUSH", count: ALL },
    Operands { name: "MGET", count: ALL },
    Operands { name: "PERSIST", count: 1 },
    Operands { name: "PEXPIRE", count: 2 },
    Operands { name: "PEXPIREAT", count: 2 },
    Operands { name: "PSETEX", count: 3 },
    Operands { name: "PTTL", count: 1 },
    Operands { name: "PUBLISH", count: 2 },
    Operands { name: "SET", count: 2 },
    Operands { name: "SETEX", count: 3 },
    Operands { name: "SETNX", count: 2 },
    Operands { name: "STRLEN", count: 1 },
    Operands { name: "TTL", count: 1 },
    Operands { name: "TYPE", count: 1 },
    Operands { name: "UNLINK", count: ALL },
];
