//! What goes wrong in a script, on its way through Lua.
//!
//! Owns    [`Fault`], the one error that our functions raise, and the place in the script that it is raised from.
//! Rule    a [`Fault::Stop`] is never handed to the script: whoever catches errors for it raises a stop again.

use mlua::{Error, Lua, Table};

/// An error that one of our functions raises inside a script.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Fault {
    /// A reply that is an error: the script sees a table.
    #[error("{}", String::from_utf8_lossy(.line))]
    Reply {
        /// What it says, code first.
        line: Vec<u8>,
        /// Whether a command said so, and has been counted for it.
        from_command: bool,
    },
    /// The end of the script, for want of memory.
    #[error("{0}")]
    Stop(Stop),
    /// The end of the script; the budget says why.
    #[error("stopped")]
    Stopped,
    /// What Lua's own functions raise: a text that begins with a place.
    #[error("{}", String::from_utf8_lossy(.0))]
    Text(Vec<u8>),
}

/// A source, as Redis names it, and a line of it: `@user_script`, 3.
pub(super) type Place = (String, usize);

/// Why a script was ended from outside.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Stop {
    /// Somebody asked for it: SCRIPT KILL.
    #[error("ERR Script killed by user with SCRIPT KILL...")]
    Killed,
    /// It is to begin again elsewhere, and nobody is told of this end.
    #[error("ERR the script begins again elsewhere")]
    Left,
    /// It asked for more memory than a script may have, in bytes.
    #[error("ERR the script needs more memory than its limit of {0} bytes")]
    Memory(usize),
}

/// The script has to end: the budget that says so knows why. It is smaller than an [`Error`], for what asks often.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stopped;

/// Whether the script may go on.
pub(super) type Checked = std::result::Result<(), Stopped>;

impl From<Stopped> for Error {
    fn from(_: Stopped) -> Self {
        Fault::Stopped.into()
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::external(fault)
    }
}

/// An error as the functions of `redis` raise it.
pub(super) fn refused(text: &str) -> Error {
    Fault::Reply { line: format!("ERR {text}").into_bytes(), from_command: false }.into()
}

/// An error reply as a script sees it.
pub(super) fn error_table(lua: &Lua, line: &[u8], from_command: bool) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 2)?;
    table.raw_set("err", lua.create_string(line)?)?;
    if from_command {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// An error as Lua's own functions raise it: the place of the call, then `text`. For use inside a function that a
/// script has called.
pub(super) fn raised(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let mut line = position(lua, 1).unwrap_or_default().into_bytes();
    line.extend_from_slice(text.as_ref());
    Fault::Text(line).into()
}

/// `bad argument #1 to 'rep' (...)`, in Lua's words: named as the script called the function, counted without the
/// value before a colon.
pub(super) fn bad_argument(lua: &Lua, number: usize, reason: &str) -> Error {
    let called = lua.inspect_stack(0, |frame| {
        let names = frame.names();
        let is_method = names.name_what == Some("method");
        (names.name.map(|name| name.into_owned()), is_method)
    });
    let (name, is_method) = called.unwrap_or((None, false));
    let name = name.unwrap_or_else(|| "?".to_owned());
    let number = number - usize::from(is_method);
    raised(
        lua,
        match number {
            0 => format!("calling '{name}' on bad self ({reason})"),
            _ => format!("bad argument #{number} to '{name}' ({reason})"),
        },
    )
}

/// `user_script:3: ` for the function at that level of the stack; `None` where it is not Lua.
fn position(lua: &Lua, level: usize) -> Option<String> {
    lua.inspect_stack(level, |frame| {
        let line = frame.current_line()?;
        Some(format!("{}: ", [frame.source().short_src?.as_ref(), &line.to_string()].join(":")))
    })?
}

/// The fault inside an error that mlua hands over, whatever it is wrapped in; memory that ran out is a stop.
pub(super) fn unwrap(error: &Error, memory_max: usize) -> Fault {
    match error {
        Error::CallbackError { cause, .. } => unwrap(cause, memory_max),
        Error::BadArgument { cause, .. } => unwrap(cause, memory_max),
        Error::ExternalError(cause) => match cause.downcast_ref::<Fault>() {
            Some(fault) => fault.clone(),
            None => Fault::Text(cause.to_string().into_bytes()),
        },
        Error::MemoryError(_) => Fault::Stop(Stop::Memory(memory_max)),
        Error::RuntimeError(text) if text == OUT_OF_MEMORY => Fault::Stop(Stop::Memory(memory_max)),
        Error::RuntimeError(text) => Fault::Text(text.clone().into_bytes()),
        other => Fault::Text(other.to_string().into_bytes()),
    }
}

/// What Lua says when its allocator refuses.
pub(super) const OUT_OF_MEMORY: &str = "not enough memory";
