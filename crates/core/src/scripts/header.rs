//! The options in the first line of a script: `#!lua flags=no-writes`.
//!
//! Source  Redis 7.0 `eval.c`, `evalExtractShebangFlags`.

/// The options of the first line, and where the Lua text begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    pub flags: Flags,
    /// Where Lua begins: at the end of the first line, so that lines keep their numbers.
    pub body: usize,
}

/// The options of a script.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flags {
    /// It may not write.
    pub no_writes: bool,
    /// It may run while memory is short.
    pub allow_oom: bool,
    /// It may run on a replica with old data.
    pub allow_stale: bool,
    /// It may not run in cluster mode.
    pub no_cluster: bool,
    /// Its keys may be in several slots.
    pub allow_cross_slot_keys: bool,
}

impl Header {
    /// Whether the script may write, if it has an option line.
    pub(crate) fn may_write(&self) -> Option<bool> {
        (self.body > 0).then_some(!self.flags.no_writes)
    }
}

/// Reads the first line of a script.
///
/// # Errors
/// The error line, if the line begins with `#!` and is malformed.
pub fn header(text: &[u8]) -> Result<Header, Vec<u8>> {
    let mut header = Header { flags: Flags::default(), body: 0 };
    if !text.starts_with(b"#!") {
        return Ok(header);
    }
    header.body = text.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid script shebang")?;
    let line = &text[..header.body];
    let words = redlatch_proto::resp::words(line).map_err(|_| "ERR Invalid engine in script shebang")?;
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
            header.flags.set(flag)?;
        }
    }
    Ok(header)
}

impl Flags {
    /// Sets a flag by its name.
    ///
    /// # Errors
    /// The error line for an unknown name.
    pub fn set(&mut self, name: &[u8]) -> Result<(), Vec<u8>> {
        match name {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" => self.allow_stale = true,
            b"no-cluster" => self.no_cluster = true,
            b"allow-cross-slot-keys" => self.allow_cross_slot_keys = true,
            _ => return Err([b"ERR Unexpected flag in script shebang: ", name].concat()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_flags() {
        let read = |text: &str| header(text.as_bytes()).map_err(|line| String::from_utf8(line).unwrap());
        assert_eq!(read("return 1").unwrap(), Header { flags: Flags::default(), body: 0 });
        let flags = Flags { no_writes: true, allow_oom: true, ..Flags::default() };
        assert_eq!(read("#!lua flags=no-writes,allow-oom\nx").unwrap(), Header { flags, body: 31 });
        for (text, line) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!lua 'x\n", "ERR Invalid engine in script shebang"),
            ("#!py\n", "ERR Unexpected engine in script shebang: #!py"),
            ("#!lua name=x\n", "ERR Unknown lua shebang option: name=x"),
            ("#!lua flags=no-writes,\n", "ERR Unexpected flag in script shebang: "),
        ] {
            assert_eq!(read(text).unwrap_err(), line, "{text}");
        }
    }
}
