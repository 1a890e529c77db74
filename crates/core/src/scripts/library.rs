//! The first line of a library of functions: `#!lua name=mylib`.
//!
//! Source  Redis 7.0 `functions.c`, `functionExtractLibMetaData`.

use redlatch_proto::resp::words;

/// The first line of a library. Lua begins at the end of that line, so that lines keep their numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Library {
    pub name: String,
    /// The length of the first line.
    pub body: usize,
}

/// A function that a library has registered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Function {
    /// Its name, as it was registered; a caller may write it in another letter case.
    pub name: String,
    pub description: Option<Vec<u8>>,
    /// Its flags, in the order of [`FLAGS`].
    pub flags: Vec<&'static str>,
}

/// A library that has been run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Loaded {
    /// Its number in the interpreter.
    pub id: u32,
    /// The functions that it has registered, in order.
    pub functions: Vec<Function>,
}

/// The flags that a function may have.
pub const FLAGS: &[&str] = &["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
/// The error text for the name of a library or function that [`is_name`] refuses.
pub const NAME_RULE: &str = "Library names can only contain letters, numbers, or underscores(_) and must be \
                             at least one character long";

impl Function {
    /// Whether it may not write.
    pub(crate) fn only_reads(&self) -> bool {
        self.flags.contains(&FLAGS[0])
    }

    /// Whether it may run while memory is short.
    pub(crate) fn may_grow(&self) -> bool {
        self.flags.contains(&"allow-oom")
    }

    /// Whether it may run in cluster mode.
    pub(crate) fn runs_in_cluster(&self) -> bool {
        !self.flags.contains(&"no-cluster")
    }

    /// Whether its keys may be in several slots in cluster mode.
    pub(crate) fn may_cross_slots(&self) -> bool {
        self.flags.contains(&"allow-cross-slot-keys")
    }
}

/// Whether a library or a function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Reads the first line of a library.
///
/// # Errors
/// The error line for one that does not name a library of Lua.
pub fn library(text: &[u8]) -> Result<Library, Vec<u8>> {
    if !text.starts_with(b"#!") {
        return Err(b"ERR Missing library metadata".to_vec());
    }
    // The line has to end before the text does, which for C is at its first NUL.
    let end = text.iter().position(|byte| matches!(byte, b'\n' | 0));
    let body = end.filter(|end| text[*end] == b'\n').ok_or("ERR Invalid library metadata")?;
    let parts = words(&text[..body]).map_err(|_| "ERR Invalid library metadata")?;
    let (engine, parts) = parts.split_first().ok_or("ERR Invalid library metadata")?;
    let mut name = None;
    for part in parts {
        let value = part.split_at_checked(5).filter(|(key, _)| key.eq_ignore_ascii_case(b"name="));
        match value {
            Some(_) if name.is_some() => {
                return Err(b"ERR Invalid metadata value, name argument was given multiple times".to_vec());
            }
            Some((_, value)) => name = Some(value),
            None => return Err([b"ERR Invalid metadata value given: ", part.as_slice()].concat()),
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    if !is_name(name) {
        return Err(format!("ERR {NAME_RULE}").into_bytes());
    }
    match engine.get(2..) {
        Some(engine) if engine.eq_ignore_ascii_case(b"lua") => {}
        engine => return Err([b"ERR Engine '", engine.unwrap_or_default(), b"' not found"].concat()),
    }
    Ok(Library { name: String::from_utf8_lossy(name).into_owned(), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_library() {
        let read = |text: &str| library(text.as_bytes()).map_err(|line| String::from_utf8(line).unwrap());
        for text in ["#!lua name=my_lib1\nx", "#!LUA NAME=my_lib1\nx", "#!lua  'name=my_lib1' \r\nx"] {
            let found = read(text).unwrap();
            assert_eq!((found.name.as_str(), &text[found.body..]), ("my_lib1", "\nx"), "{text}");
        }
        for (text, line) in [
            ("", "ERR Missing library metadata"),
            ("#!lua name=a", "ERR Invalid library metadata"),
            ("#!lua name=a\0\n", "ERR Invalid library metadata"),
            ("#!lua name='a\n", "ERR Invalid library metadata"),
            ("#!\n", "ERR Library name was not given"),
            ("#!py name=a b=c\n", "ERR Invalid metadata value given: b=c"),
            ("#!py name=a-b\n", &format!("ERR {NAME_RULE}")),
            ("#!py name=a\n", "ERR Engine 'py' not found"),
        ] {
            assert_eq!(read(text).unwrap_err(), line, "{text}");
        }
    }
}
