//! The client's side of TLS, for `redlatch health`.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Fault;

/// Which servers to trust, and the certificate to show to them.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Trust {
    /// File of the authorities that may vouch for the server.
    pub(super) authorities: Option<String>,
    /// Whether any server is trusted.
    pub(super) accepts_any: bool,
    /// Files of a certificate and its key, for a server that asks for them.
    pub(super) identity: Option<(String, String)>,
}

/// A connection of any kind.
pub(super) trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// The connection with TLS around it; the handshake takes place with the first request.
///
/// # Errors
/// Certificates that cannot be used, no trusted authority, or a build without TLS.
#[cfg(not(feature = "tls"))]
pub(super) fn handshake(_: TcpStream, _: &str, _: &Trust) -> Result<Box<dyn Stream>, Fault> {
    Err("rediss://: this build lacks the feature tls".into())
}

#[cfg(feature = "tls")]
pub(super) use rustls_client::handshake;

#[cfg(feature = "tls")]
mod rustls_client {
    use std::sync::Arc;

    use tokio_rustls::rustls::client::danger::{
        HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
    };
    use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
    use tokio_rustls::rustls::{
        ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        StreamOwned, crypto,
    };

    use super::{Fault, Stream, TcpStream, Trust};

    /// The connection with TLS around it; the handshake takes place with the first request.
    ///
    /// # Errors
    /// Certificates that cannot be used, or no trusted authority.
    pub(in crate::cli) fn handshake(
        stream: TcpStream,
        host: &str,
        trust: &Trust,
    ) -> Result<Box<dyn Stream>, Fault> {
        let unfit = |what: &str| format!("{host}: {what}");
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unfit(&error.to_string()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| unfit(&error.to_string()))?;
        let builder = match &trust.authorities {
            _ if trust.accepts_any => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            }
            Some(file) => builder.with_root_certificates(authorities(file)?),
            None => {
                return Err(unfit("to trust the server, use --cacert FILE or --insecure"));
            }
        };
        let config = match &trust.identity {
            Some((certificate, key)) => {
                let (chain, key) = (certificates(certificate)?, self::key(key)?);
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("{certificate}: {error}"))?
            }
            None => builder.with_no_client_auth(),
        };
        let session = ClientConnection::new(Arc::new(config), name);
        let session = session.map_err(|error| unfit(&error.to_string()))?;
        Ok(Box::new(StreamOwned::new(session, stream)))
    }

    fn authorities(file: &str) -> Result<RootCertStore, Fault> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file)? {
            roots.add(certificate).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(roots)
    }

    fn certificates(file: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
        let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        found.map_err(|error| format!("{file}: {error}"))
    }

    fn key(file: &str) -> Result<PrivateKeyDer<'static>, Fault> {
        PrivateKeyDer::from_pem_file(file).map_err(|error| format!("{file}: {error}"))
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
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let known = &self.0.signature_verification_algorithms;
            crypto::verify_tls12_signature(message, certificate, signed, known)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let known = &self.0.signature_verification_algorithms;
            crypto::verify_tls13_signature(message, certificate, signed, known)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
