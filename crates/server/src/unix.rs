//! The Unix socket that the settings ask for.

use std::path::Path;

use redlatch_core::state::settings::{self, Handle, Settings};
use redlatch_platform::unix_socket::{SocketFile, bind, blocking::UnixListener};

use super::StartError;
use super::listener::BACKLOG;

#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    pub(super) file: SocketFile,
}

impl Bound {
    /// Listens at the path that a setting has, with the permissions of `unixsocketperm`; `None` without a path.
    ///
    /// # Errors
    /// The path cannot be listened at, or the permissions are none.
    pub(super) fn open(settings: &Settings, path: Handle<String>) -> Result<Option<Self>, StartError> {
        let path = settings.get(path);
        if path.is_empty() {
            return Ok(None);
        }
        let mode = permissions(&settings.get(settings::UNIXSOCKETPERM)).map_err(StartError::Unusable)?;
        let bound = bind(Path::new(&path), mode, BACKLOG);
        let bound = bound.map_err(|error| StartError::Listen { address: path, error })?;
        Ok(Some(Self { listener: bound.0, file: bound.1 }))
    }

    /// A socket that another program has opened. Its file stays.
    pub(super) fn inherited(listener: UnixListener) -> Self {
        Self { file: SocketFile::of_another(&listener), listener }
    }
}

/// Parses the setting `unixsocketperm`; `None` leaves the permissions to the umask.
///
/// # Errors
/// The text is not an octal number up to 777.
pub(super) fn permissions(octal: &str) -> Result<Option<u32>, String> {
    // As in Redis, 0 means no permissions are set.
    let mode = if octal.is_empty() { Ok(0) } else { u32::from_str_radix(octal, 8) };
    match mode {
        Ok(mode) if mode <= 0o777 && !octal.starts_with('+') => Ok((mode != 0).then_some(mode)),
        _ => Err(format!("unixsocketperm '{octal}': must be octal, between 0 and 777")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal() {
        for (octal, mode) in [("", None), ("0", None), ("700", Some(0o700)), ("0770", Some(0o770))] {
            assert_eq!(permissions(octal), Ok(mode), "{octal}");
        }
        for octal in ["8", "79", "rwx", "0x1f", "1000", "-1", "+7", " 700", "77777777777"] {
            assert!(permissions(octal).unwrap_err().contains("must be octal"), "{octal}");
        }
    }
}
