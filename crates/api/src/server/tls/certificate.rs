//! Who a peer is, by the certificate that it has shown and proven to own.

use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The verified certificate of a connection's peer, among the extensions of its requests. Cheap to
/// clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(Arc<CertificateNames>);

#[derive(Debug, PartialEq, Eq)]
struct CertificateNames {
    subject: String,
    dns_names: Vec<String>,
    uris: Vec<String>,
    fingerprint: String,
}

impl ClientCertificate {
    /// Reads a certificate that was verified before.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> io::Result<Self> {
        let parsed = parse(certificate)?;
        let alternative = parsed.tbs_certificate.get::<SubjectAltName>().map_err(unreadable)?;
        let (mut dns_names, mut uris) = (Vec::new(), Vec::new());
        for name in alternative.into_iter().flat_map(|(_, SubjectAltName(names))| names) {
            match name {
                GeneralName::DnsName(name) => dns_names.push(name.to_string()),
                GeneralName::UniformResourceIdentifier(uri) => uris.push(uri.to_string()),
                _ => {}
            }
        }
        let subject = parsed.tbs_certificate.subject.to_string();
        let fingerprint = hex::encode(Sha256::digest(certificate));
        Ok(Self(Arc::new(CertificateNames { subject, dns_names, uris, fingerprint })))
    }

    /// Its subject, as RFC 4514 writes it, such as `CN=billing,O=Example`.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// The DNS names among its subject alternative names.
    pub fn dns_names(&self) -> &[String] {
        &self.0.dns_names
    }

    /// The URIs among its subject alternative names, such as a SPIFFE id.
    pub fn uris(&self) -> &[String] {
        &self.0.uris
    }

    /// The SHA-256 of the whole certificate, as 64 hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.0.fingerprint
    }
}

/// When a certificate expires, in seconds since 1970.
pub(super) fn expires_at(certificate: &CertificateDer<'_>) -> io::Result<u64> {
    Ok(parse(certificate)?.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

fn parse(certificate: &CertificateDer<'_>) -> io::Result<Certificate> {
    Certificate::from_der(certificate).map_err(unreadable)
}

fn unreadable(error: x509_cert::der::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
