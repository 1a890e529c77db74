//! TLS: the server's certificates, the clients' certificates, and the handshake.
//!
//! Owns    the certificates in use, and the stream under a connection that came through `tls-port`.
//! Rule    a handshake is part of its connection: it counts as a client, can be killed, and takes [`HANDSHAKE_MAX`]
//!         at most. Unusable settings leave the certificates in use as they are.
//! Source  the settings' meaning: Redis 7.0 `tls.c`. Nothing below TLS 1.2 is spoken, whatever `tls-protocols` says.

mod certificate;

use std::fmt;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, BufReader};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::RwLock;
use redlatch_core::state::settings;
use redlatch_proto::certificates::in_words;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Timeout;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::ReadSetting;
use super::peer::Peer;
use certificate::{NamedBy, not_after};

/// How long a handshake may take, from the accepted connection on.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Tls {
    current: RwLock<Current>,
    /// Until when the certificates are valid: seconds of Unix, 0 if that is not known.
    ends: Arc<AtomicU64>,
}

/// What new connections meet.
struct Current {
    acceptor: TlsAcceptor,
    /// What names the user in the certificate of a client.
    named_by: Option<NamedBy>,
    ends: u64,
}

impl Tls {
    /// Loads the certificates that the settings name; `read` returns the value of a setting.
    ///
    /// # Errors
    /// Which setting cannot be used, and why.
    pub(super) fn open(read: ReadSetting<'_>) -> Result<Self, String> {
        let current = Current::open(read)?;
        Ok(Self { ends: Arc::new(AtomicU64::new(current.ends)), current: RwLock::new(current) })
    }

    /// Reads the settings and their files again, for new connections. After an error the old certificates stay in
    /// use.
    ///
    /// # Errors
    /// As [`Tls::open`].
    pub(super) fn renew(&self, read: ReadSetting<'_>) -> Result<(), String> {
        let renewed = Current::open(read)?;
        self.ends.store(renewed.ends, Relaxed);
        *self.current.write() = renewed;
        Ok(())
    }

    /// Until when the certificates in use are valid, also after [`Tls::renew`]: seconds of Unix, 0 if that is not known.
    pub(super) fn ends(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.ends)
    }

    /// The server's side of a new connection. Reading from it performs the handshake.
    pub(super) fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> ServerStream<S> {
        let current = self.current.read();
        let handshake = Box::pin(tokio::time::timeout(HANDSHAKE_MAX, current.acceptor.accept(stream)));
        ServerStream { stage: Stage::Handshake(handshake), named_by: current.named_by }
    }
}

impl Current {
    fn open(read: ReadSetting<'_>) -> Result<Self, String> {
        let chain = certificates("tls-cert-file", &read(settings::TLS_CERT_FILE))?;
        let ends = chain.iter().filter_map(not_after).min().unwrap_or(0);
        let named_by = NamedBy::of(&read(settings::TLS_AUTH_CLIENTS_USER));
        Ok(Self { acceptor: acceptor(read, chain)?, named_by, ends })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// A stream inside TLS. Dropping it sends `close_notify`, so that the peer can distinguish the end from a truncation
/// attack.
pub(super) struct ServerStream<S: AsyncRead + AsyncWrite + Unpin> {
    stage: Stage<S>,
    /// What names the user in the client's certificate, until that has been asked.
    named_by: Option<NamedBy>,
}

enum Stage<S> {
    /// The handshake is in progress.
    Handshake(Pin<Box<Timeout<Accept<S>>>>),
    Open(Box<TlsStream<S>>),
    Failed,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ServerStream<S> {
    /// The stream, once the handshake is over.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<S>>>> {
        if let Stage::Handshake(handshake) = &mut self.stage {
            let failed = match ready!(handshake.as_mut().poll(cx)) {
                Ok(Ok(stream)) => {
                    self.stage = Stage::Open(Box::new(stream));
                    None
                }
                Ok(Err(error)) => Some(error),
                Err(late) => Some(late.into()),
            };
            if let Some(error) = failed {
                tracing::debug!(error = in_words(error.to_string()), "TLS handshake failed");
                self.stage = Stage::Failed;
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(match &mut self.stage {
            Stage::Open(stream) => Ok(Pin::new(&mut **stream)),
            Stage::Handshake(_) | Stage::Failed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ServerStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_read(cx, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ServerStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Before the handshake is done there is nothing else to flush.
        match &mut self.stage {
            Stage::Open(stream) => Pin::new(&mut **stream).poll_flush(cx),
            Stage::Handshake(_) | Stage::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_shutdown(cx)
    }
}

/// A reset would have to pass TLS by: an ordinary close is all that its peer sees.
impl<S: Peer> Peer for ServerStream<S> {
    fn take_client(&mut self) -> Option<String> {
        let Stage::Open(stream) = &mut self.stage else { return None };
        stream.get_mut().0.take_client()
    }

    fn take_names(&mut self) -> Option<Vec<Vec<u8>>> {
        let Stage::Open(stream) = &self.stage else { return None };
        let named_by = self.named_by.take()?;
        let certificate = stream.get_ref().1.peer_certificates()?.first()?;
        Some(named_by.names(certificate))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Drop for ServerStream<S> {
    fn drop(&mut self) {
        if let Stage::Open(stream) = &mut self.stage {
            // One attempt: the peer may be gone. Unconstrained, because the task's budget may be used up.
            let shutdown = poll_fn(|cx| Pin::new(&mut **stream).poll_shutdown(cx));
            let shutdown = pin!(tokio::task::unconstrained(shutdown));
            let _ = shutdown.poll(&mut Context::from_waker(Waker::noop()));
        }
    }
}

/// The TLS configuration from the settings and the files that they name.
fn acceptor(read: ReadSetting<'_>, chain: Vec<CertificateDer<'static>>) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(ring::default_provider());
    let (versions, clients) = (versions(&read(settings::TLS_PROTOCOLS))?, clients(read)?);
    let key = key("tls-key-file", &read(settings::TLS_KEY_FILE))?;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&versions);
    let builder = builder.map_err(|error| format!("tls-protocols: {error}"))?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(chain, key);
    let reason = |error: Error| in_words(error.to_string());
    let config =
        config.map_err(|error| format!("tls-cert-file and tls-key-file do not fit: {}", reason(error)))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let words = if words.trim().is_empty() { "TLSv1.2 TLSv1.3" } else { words };
    let named = words.split_ascii_whitespace().map(|word| match word {
        word if word.eq_ignore_ascii_case("TLSv1.2") => Ok(&version::TLS12),
        word if word.eq_ignore_ascii_case("TLSv1.3") => Ok(&version::TLS13),
        _ => {
            Err(format!("tls-protocols '{words}': must be TLSv1.2, TLSv1.3 or both; older ones are not safe"))
        }
    });
    named.collect()
}

/// The verifier of client certificates; `None` if clients need not show one.
fn clients(read: ReadSetting<'_>) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let auth = read(settings::TLS_AUTH_CLIENTS);
    if auth == "no" {
        return Ok(None);
    }
    let roots = authorities(&read(settings::TLS_CA_CERT_FILE), &read(settings::TLS_CA_CERT_DIR))?;
    if roots.is_empty() {
        return Err(format!(
            "tls-auth-clients '{auth}': must be no where there is no tls-ca-cert-file or -dir"
        ));
    }
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if auth == "optional" { builder.allow_unauthenticated() } else { builder };
    builder.build().map(Some).map_err(|error| format!("tls-ca-cert-file: {error}"))
}

/// The authorities in a file and in all files of a directory; either may be empty.
fn authorities(file: &str, directory: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if !file.is_empty() {
        for certificate in certificates("tls-ca-cert-file", file)? {
            roots.add(certificate).map_err(|error| format!("tls-ca-cert-file '{file}': {error}"))?;
        }
    }
    if !directory.is_empty() {
        let refused = |error: io::Error| format!("tls-ca-cert-dir '{directory}': {error}");
        for entry in std::fs::read_dir(directory).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
            // Other files, such as keys and revocation lists, are skipped.
            if let Ok(found) = certificates("tls-ca-cert-dir", &path.to_string_lossy()) {
                roots.add_parsable_certificates(found);
            }
        }
    }
    Ok(roots)
}

/// The certificates in a file, in its order.
fn certificates(setting: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let unfit = |reason: String| format!("{setting} '{path}': must be a file of PEM certificates: {reason}");
    let file = open(path).map_err(|error| unfit(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(file).collect();
    match found {
        Ok(found) if found.is_empty() => Err(unfit("there is none".to_owned())),
        found => found.map_err(|error| unfit(error.to_string())),
    }
}

fn key(setting: &str, path: &str) -> Result<PrivateKeyDer<'static>, String> {
    let unfit = |reason: String| format!("{setting} '{path}': must be a file with an open PEM key: {reason}");
    let file = open(path).map_err(|error| unfit(error.to_string()))?;
    PrivateKeyDer::from_pem_reader(file).map_err(|error| unfit(error.to_string()))
}

fn open(path: &str) -> io::Result<BufReader<File>> {
    File::open(path).map(BufReader::new)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A self-signed certificate, made for the test.
    fn tls() -> Tls {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        // Tests run in parallel: each call has its own directory.
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let (process, call) = (std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(format!("redlatch-tls-unit-{process}-{call}"));
        std::fs::create_dir_all(&directory).unwrap();
        let file = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (certificate, key) =
            (file("crt", made.cert.pem()), file("key", made.signing_key.serialize_pem()));
        let tls = Tls::open(&|setting| match setting.name() {
            "tls-cert-file" => certificate.clone(),
            "tls-key-file" => key.clone(),
            "tls-auth-clients" => "no".to_owned(),
            _ => String::new(),
        });
        std::fs::remove_dir_all(&directory).unwrap();
        tls.unwrap()
    }

    // With a paused clock, the runtime advances time whenever all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_takes_too_long_ends() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut stream = tls().accept(ours);
        theirs.write_all(&[0x16, 3, 1]).await.unwrap();
        let began = tokio::time::Instant::now();
        let error = stream.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, HANDSHAKE_MAX));
        drop(stream);
        assert_eq!(theirs.read(&mut [0; 9]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn bytes_that_are_not_a_handshake_are_never_read_as_requests() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut stream = tls().accept(ours);
        theirs.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
        for _ in 0..2 {
            assert!(stream.read(&mut [0; 1]).await.is_err());
            assert!(stream.write(b"+PONG\r\n").await.is_err());
        }
    }
}
