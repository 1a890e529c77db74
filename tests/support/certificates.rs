//! Certificates, made as a test needs them: nothing that expires lies in the repository.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
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

    /// A certificate and key for a peer on this machine, both in PEM.
    pub(crate) fn vouch(&self, name: &str) -> (String, String) {
        self.sign(Self::params(&[(DnType::CommonName, name)], &[]))
    }

    /// The same for one that has ended with the year 2019.
    pub(crate) fn vouch_expired(&self, name: &str) -> (String, String) {
        let mut params = Self::params(&[(DnType::CommonName, name)], &[]);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(params)
    }

    /// The same with these URIs, too.
    pub(crate) fn vouch_uris(&self, name: &str, uris: &[&str]) -> (String, String) {
        self.sign(Self::params(&[(DnType::CommonName, name)], uris))
    }

    /// The same without a common name.
    #[cfg(feature = "etcd")]
    pub(crate) fn vouch_nameless(&self) -> (String, String) {
        self.sign(Self::params(&[(DnType::OrganizationName, "nodes")], &[]))
    }

    fn params(names: &[(DnType, &str)], uris: &[&str]) -> CertificateParams {
        let hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(hosts).unwrap();
        let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        // It begins with one of its own.
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
