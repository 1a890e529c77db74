//! The first line of a script: `#!lua flags=no-writes`.
//!
//! Source  Redis 7.0 `eval.c`, `evalExtractShebangFlags`.

/// What the first line says, and where the script goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// What it asks for.
    pub flags: Flags,
    /// Where Lua begins: at the end of the first line, so that lines keep their numbers.
    pub body: usize,
}

/// What a script says of itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flags {
    /// It writes nothing, and is held to that.
    pub no_writes: bool,
    /// It may run while memory is short.
    pub allow_oom: bool,
    /// It may run on a replica with old data.
    pub allow_stale: bool,
}

/// Reads the first line of a script.
///
/// # Errors
/// The error line for one that begins with `#!` and goes on wrongly.
pub fn header(text: &[u8]) -> Result<Header, Vec<u8>> {
    let mut header = Header { flags: Flags::default(), body: 0 };
    if !text.starts_with(b"#!") {
        return Ok(header);
    }
    header.body = text.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid script shebang")?;
    let line = &text[..header.body];
    let words = crate::resp::words(line).map_err(|_| "ERR Invalid engine in script shebang")?;
    let (engine, options) = words.split_first().ok_or("ERR Invalid engine in script shebang")?;
    if engine != b"#!lua" {
        return Err([b"ERR Unexpected engine in script shebang: ", engine.as_slice()].concat());
    }
    for word in options {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err([b"ERR Unknown lua shebang option: ", word.as_slice()].concat());
        };
        if flags.is_empty() {
            continue;
        }
        for flag in flags.split(|byte| *byte == b',') {
            header.flags.raise(flag)?;
        }
    }
    Ok(header)
}

impl Flags {
    /// Raises a flag by its name.
    ///
    /// # Errors
    /// The error line for a name that is none.
    pub fn raise(&mut self, name: &[u8]) -> Result<(), Vec<u8>> {
        match name {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" => self.allow_stale = true,
            // There is no cluster to ask.
            b"no-cluster" | b"allow-cross-slot-keys" => {}
            _ => return Err([b"ERR Unexpected flag in script shebang: ", name].concat()),
        }
        Ok(())
    }
}
