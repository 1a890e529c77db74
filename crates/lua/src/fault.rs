//! Errors of scripts, on their way through Lua.
//!
//! Owns    [`Fault`], the one error that functions written in Rust raise, and the place in the script that it names.
//! Rule    mlua hands an error of Rust to Lua as a userdata. The prelude turns it into the value that the script sees
//!         wherever a script can catch it, so that a function that succeeds pays nothing.

use mlua::{Error, Lua, Table};

/// An error that a function written in Rust raises inside a script.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Fault {
    /// An error reply: the script sees a table.
    #[error("{}", String::from_utf8_lossy(.line))]
    Reply {
        /// The error line, code first.
        line: Vec<u8>,
        /// Whether a command answered it, and it is counted already.
        from_command: bool,
    },
    /// The end of the script. The budget knows the reason.
    #[error("stopped")]
    Stopped,
    /// An error text, with the place in front if there is one, as Lua's own functions raise it.
    #[error("{}", String::from_utf8_lossy(.0))]
    Text(Vec<u8>),
}

/// A source as Redis names it, and a line of it: `@user_script`, 3.
pub(super) type Place = (String, usize);

/// Why a script was ended from outside.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Stop {
    /// SCRIPT KILL, FUNCTION KILL or the end of the server.
    #[error("ERR Script killed by user with SCRIPT KILL...")]
    Killed,
    /// The script asked for more memory than it may hold, in bytes.
    #[error("ERR the script needs more memory than its limit of {0} bytes")]
    Memory(usize),
}

/// The script has to end. Smaller than an [`Error`], for functions that check often.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stopped;

/// Whether the script may go on.
pub(super) type Checked = Result<(), Stopped>;

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

/// An error reply with the code `ERR`, as the functions of `redis` raise it.
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

/// An error with the place of the call in front, for use inside a function that a script has called.
pub(super) fn raised(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    let mut line = Vec::new();
    if let Some((name, at)) = line_at(lua, library_frames(lua)) {
        line.extend_from_slice(format!("{name}:{at}: ").as_bytes());
    }
    line.extend_from_slice(text.as_ref());
    Fault::Text(line).into()
}

/// `bad argument #1 to 'rep' (...)`, as Lua's auxiliary library words it: with the name by which the script called the
/// function, and without counting the value before a colon.
pub(super) fn bad_argument(lua: &Lua, number: usize, reason: impl AsRef<[u8]>) -> Error {
    let called = lua.inspect_stack(library_frames(lua) - 1, |frame| {
        let names = frame.names();
        (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
    });
    let (name, is_method) = called.unwrap_or_default();
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "?".to_owned());
    let start = match number as i64 - i64::from(is_method) {
        0 if is_method => format!("calling '{name}' on bad self ("),
        number => format!("bad argument #{number} to '{name}' ("),
    };
    raised(lua, [start.as_bytes(), reason.as_ref(), b")"].concat())
}

/// Stack levels that belong to the library function that the script called: the function that runs and the frames of
/// the prelude below it.
fn library_frames(lua: &Lua) -> usize {
    let is_library = |level| {
        let is_library = |source: &str| source == PRELUDE_NAME || source == TAIL_CALL;
        lua.inspect_stack(level, |frame| frame.source().source.as_deref().is_some_and(is_library))
    };
    (1..).find(|level| is_library(*level) != Some(true)).unwrap_or(1)
}

/// What Lua gives as the source of a frame that a tail call has replaced.
const TAIL_CALL: &str = "=(tail call)";
/// The chunk name of the prelude. Its frames are no place of a script.
pub(super) const PRELUDE_NAME: &str = "=(redlatch)";

/// The short name of the source at that level of the stack, and the line; `None` where no Lua function runs there.
fn line_at(lua: &Lua, level: usize) -> Option<(String, usize)> {
    lua.inspect_stack(level, |frame| {
        let line = frame.current_line()?;
        Some((frame.source().short_src?.into_owned(), line))
    })?
}

/// The innermost line of the script that runs.
pub(super) fn innermost(lua: &Lua) -> Option<Place> {
    (0..FRAMES_MAX)
        .map_while(|level| {
            lua.inspect_stack(level, |frame| {
                let line = frame.current_line()?;
                let source = frame.source().source?.into_owned();
                (source != PRELUDE_NAME).then_some((source, line))
            })
        })
        .flatten()
        .next()
}

/// Stack levels that are searched for a line of a script.
const FRAMES_MAX: usize = 100;

/// The fault inside an error that mlua hands over, however it is wrapped.
pub(super) fn unwrap(error: &Error) -> Fault {
    match error {
        Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } => unwrap(cause),
        Error::ExternalError(cause) => match cause.downcast_ref::<Fault>() {
            Some(fault) => fault.clone(),
            None => Fault::Text(cause.to_string().into_bytes()),
        },
        Error::MemoryError(_) => Fault::Text(OUT_OF_MEMORY.as_bytes().to_vec()),
        Error::RuntimeError(text) => Fault::Text(text.clone().into_bytes()),
        Error::StackError => Fault::Text(b"stack overflow".to_vec()),
        other => Fault::Text(other.to_string().into_bytes()),
    }
}

/// What Lua raises when its allocator refuses. A script that raises this text itself is ended, too.
pub(super) const OUT_OF_MEMORY: &str = "not enough memory";
