//! Texts of the system, which may be no Unicode: names, arguments, variables.

use std::ffi::OsString;

/// The text of these bytes. Where texts of the system are Unicode, the character U+FFFD stands for what is none.
pub fn from_bytes(bytes: Vec<u8>) -> OsString {
    #[cfg(unix)]
    let text = std::os::unix::ffi::OsStringExt::from_vec(bytes);
    #[cfg(not(unix))]
    let text = String::from_utf8_lossy(&bytes).into_owned().into();
    text
}
