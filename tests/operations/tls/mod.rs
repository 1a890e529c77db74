//! TLS from outside: which clients are accepted, data transfer, and changes of certificates.
//!
//! Belongs here  every test that needs a certificate; the tests make their own certificates.
//! Time          no sleep: a test waits for bytes or for the end of a connection.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod certificates;
mod clients;
mod login;
mod process;
mod traffic;

use std::io;
use std::sync::Arc;

use redlatch::{Builder, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

use crate::support::binary::Directory;
use crate::support::certificates::Authority;

/// The certificate authority of a server, and the directory of its files.
struct TlsFixture {
    authority: Authority,
    directory: Directory,
}

/// A client that is about to connect.
struct Connector<'w> {
    trusts: &'w Authority,
    /// Its certificate and key, in PEM.
    shows: Option<(String, String)>,
    versions: Vec<&'static SupportedProtocolVersion>,
}

/// A client of one server.
struct Client(TlsStream<TcpStream>);

impl Directory {
    /// Writes `NAME.crt` and `NAME.key`, signed by `authority`; returns their paths.
    fn write_pair(&self, authority: &Authority, name: &str) -> (String, String) {
        let (certificate, key) = authority.vouch(name);
        (self.write(&format!("{name}.crt"), &certificate), self.write(&format!("{name}.key"), &key))
    }
}

impl TlsFixture {
    fn new() -> Self {
        Self { authority: Authority::new("everybody's friend"), directory: Directory::new() }
    }

    /// A server whose certificate this fixture's authority has signed.
    fn builder(&self) -> Builder {
        let (certificate, key) = self.directory.write_pair(&self.authority, "server");
        Server::builder().tls(certificate, key)
    }

    /// A server that accepts only clients whose certificate the authority has signed.
    fn strict_builder(&self) -> Builder {
        self.builder().tls_clients(self.directory.write("authority.crt", &self.authority.pem))
    }

    async fn server(&self) -> Server {
        self.builder().start().await.unwrap()
    }

    /// A client that trusts this fixture's authority and presents no certificate.
    fn connector(&self) -> Connector<'_> {
        Connector { trusts: &self.authority, shows: None, versions: vec![&version::TLS12, &version::TLS13] }
    }
}

impl Connector<'_> {
    fn speaking(self, version: &'static SupportedProtocolVersion) -> Self {
        Self { versions: vec![version], ..self }
    }

    fn showing(self, authority: &Authority) -> Self {
        self.showing_pair(authority.vouch("connector"))
    }

    /// Shows this certificate, which has this key.
    fn showing_pair(self, pair: (String, String)) -> Self {
        Self { shows: Some(pair), ..self }
    }

    /// Connects and sends PING: by its reply the server has checked the client's certificate.
    async fn connect(self, server: &Server) -> io::Result<Client> {
        self.connect_to(&server.tls_addr().to_string()).await
    }

    async fn connect_to(self, address: &str) -> io::Result<Client> {
        let mut client = open(address, self.config()).await?;
        client.say("PING\r\n").await?;
        client.hear("+PONG\r\n").await?;
        Ok(client)
    }

    fn config(self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.trusts.pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&self.versions).unwrap().with_root_certificates(roots);
        Arc::new(match self.shows {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}

/// Connects, and sends no request.
async fn open(address: &str, config: Arc<ClientConfig>) -> io::Result<Client> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    Ok(Client(TlsConnector::from(config).connect(name, stream).await?))
}

impl Client {
    async fn say(&mut self, words: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.write_all(words.as_ref()).await?;
        self.0.flush().await
    }

    /// Reads as many bytes as `expected` has, which they must equal.
    async fn hear(&mut self, expected: impl AsRef<[u8]>) -> io::Result<()> {
        let expected = expected.as_ref();
        let mut heard = vec![0; expected.len()];
        self.0.read_exact(&mut heard).await?;
        assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(expected));
        Ok(())
    }

    /// The text of the bulk string that answers a request.
    async fn text(&mut self, request: &str) -> String {
        self.say(format!("{request}\r\n")).await.unwrap();
        let bytes: usize = self.line().await[1..].parse().unwrap();
        let mut text = vec![0; bytes + 2];
        self.0.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    async fn ask(&mut self, request: &str, expected: &str) {
        self.say(format!("{request}\r\n")).await.unwrap();
        self.hear(expected).await.unwrap();
    }

    /// The next line without its CRLF.
    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.0.read_u8().await.unwrap());
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// The certificate that the server presented.
    fn certificate(&self) -> Vec<u8> {
        self.0.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }
}

/// Sends bytes without TLS; returns all bytes up to the end of the connection.
async fn shout(address: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset counts as an end.
    let _ = stream.read_to_end(&mut answer).await;
    answer
}
