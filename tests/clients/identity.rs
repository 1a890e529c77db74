//! TLS files for a server and its clients: certificates and a port.
//!
//! Owns    a directory: `authority.crt`, the server's authority, `stranger.crt`, an authority it does not trust,
//!         and `.crt` and `.key` of a `server` and a `client`.
//! Knows   the settings' names, which are redis-server's, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::certificates::Authority;
use crate::support::ports::free_port;

/// One server's. Its files go with it.
pub(crate) struct Identity {
    files: PathBuf,
    /// `None` where the server picks one, and writes it down.
    port: Option<u16>,
}

impl Identity {
    /// Files in a new directory in `dir`.
    pub(crate) fn new(dir: &Path) -> Result<Self, String> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let port = std::env::var_os("REDLATCH_SERVER").map(|_| free_port());
        let files = dir.join(format!("certificates-{}-{number}", std::process::id()));
        let identity = Self { files, port };
        identity.write().map_err(|error| format!("certificates: {error}"))?;
        Ok(identity)
    }

    fn write(&self) -> std::io::Result<()> {
        let write = |name: &str, text: &str| fs::write(self.files.join(name), text);
        let authority = Authority::new("authority");
        fs::create_dir_all(&self.files)?;
        write("authority.crt", &authority.pem)?;
        write("stranger.crt", &Authority::new("stranger").pem)?;
        for name in ["server", "client"] {
            let (certificate, key) = authority.vouch(name);
            write(&format!("{name}.crt"), &certificate)?;
            write(&format!("{name}.key"), &key)?;
        }
        Ok(())
    }

    /// The directory of the files.
    pub(crate) fn files(&self) -> &Path {
        &self.files
    }

    /// The arguments that have a server take them.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let file = |name: &str| self.files.join(name).display().to_string();
        let mut words = vec!["--tls-cert-file".to_owned(), file("server.crt")];
        words.extend(["--tls-key-file".to_owned(), file("server.key")]);
        words.extend(["--tls-ca-cert-file".to_owned(), file("authority.crt")]);
        match self.port {
            Some(port) => words.extend(["--tls-port".to_owned(), port.to_string()]),
            None => words.extend(["--tls-port=auto".to_owned(), "--tls-port-file".to_owned(), file("port")]),
        }
        words
    }

    /// The TLS port of the server that was started with these arguments and is ready.
    pub(crate) fn port(&self) -> Result<u16, String> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        let text =
            fs::read_to_string(self.files.join("port")).map_err(|error| format!("port file: {error}"))?;
        text.trim().parse().map_err(|_| format!("port file: {text:?} is not a port"))
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.files));
    }
}
