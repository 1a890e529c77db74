//! The client's side of TLS.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme, crypto,
};

use super::connection::Stream;
use super::error::Error;
use super::target::Trust;

/// The connection with TLS around it. `protocols`: what is spoken over it, if the server is to know that beforehand (ALPN).
///
/// # Errors
/// Certificates that cannot be used, no trusted authority, or a server that is not trusted.
pub async fn handshake(
    stream: TcpStream,
    host: &str,
    trust: &Trust,
    protocols: &[&[u8]],
) -> Result<Box<dyn Stream>, Error> {
    let unfit = |what: &str| Error::Url(format!("{host}: {what}"));
    let name = ServerName::try_from(host.to_owned()).map_err(|error| unfit(&error.to_string()))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| unfit(&error.to_string()))?;
    let builder = match &trust.authorities {
        _ if trust.accepts_any => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
        }
        Some(file) => builder.with_root_certificates(authorities(file)?),
        None => return Err(unfit("to trust the server, use --cacert FILE or --insecure")),
    };
    let mut config = match &trust.identity {
        Some((certificate, key)) => {
            let (chain, key) = (certificates(certificate)?, self::key(key)?);
            builder.with_client_auth_cert(chain, key).map_err(|error| in_file(certificate, error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let connector = TlsConnector::from(Arc::new(config));
    Ok(Box::new(connector.connect(name, stream).await?))
}

fn in_file(file: &str, error: impl std::fmt::Display) -> Error {
    Error::Url(format!("{file}: {error}"))
}

fn authorities(file: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| in_file(file, error))?;
    }
    Ok(roots)
}

fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    found.map_err(|error| in_file(file, error))
}

fn key(file: &str) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| in_file(file, error))
}

/// Trusts every server that holds the key of the certificate it shows.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
