//! Certificates, made as a test needs them: nothing that expires lies in the repository.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::binary::Directory;

/// Who vouches for others.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate and its key for somebody on this machine, both in PEM.
    pub(crate) fn vouch(&self, name: &str) -> (String, String) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

impl Directory {
    /// Writes `NAME.crt` and `NAME.key` for somebody whom `authority` vouches for; returns their paths.
    pub(crate) fn write_pair(&self, authority: &Authority, name: &str) -> (String, String) {
        let (certificate, key) = authority.vouch(name);
        (self.write(&format!("{name}.crt"), &certificate), self.write(&format!("{name}.key"), &key))
    }
}
