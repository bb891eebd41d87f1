//! Certificates for tests: an authority of the test's own, and the certificates that it signs.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

/// An authority that only a client with its certificate trusts.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What a certificate says.
#[derive(Clone, Copy, Debug, Default)]
pub struct CertificateSpec<'s> {
    /// Its subject; any if it is empty.
    pub common_name: &'s str,
    /// Its subject alternative names: URIs, addresses and DNS names.
    pub names: &'s [&'s str],
    /// What it may be used for.
    pub usage: CertificateUsage,
    /// Whether it was valid long ago.
    pub is_expired: bool,
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateUsage {
    /// It does not say.
    #[default]
    Any,
    /// By clients only.
    Client,
    /// By servers only.
    Server,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// A new authority.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key can be made"));
        Self { issuer: issuer.expect("an authority signs itself") }
    }

    /// Its own certificate, as PEM.
    pub fn root(&self) -> String {
        self.issuer.pem()
    }

    /// Its own certificate in a file.
    pub fn write_root(&self, file: &Path) {
        std::fs::write(file, self.root()).expect("a file of the test's own can be written");
    }

    /// A certificate for a server of these names or addresses.
    pub fn issue(&self, names: &[&str]) -> Certificate {
        self.issue_as(CertificateSpec { names, ..CertificateSpec::default() })
    }

    /// A certificate that says this.
    pub fn issue_as(&self, spec: CertificateSpec<'_>) -> Certificate {
        let (uris, names): (Vec<&str>, Vec<&str>) = spec.names.iter().partition(|name| name.contains("://"));
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).expect("the test's own names are names");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("the test's own URIs are URIs")));
        params.subject_alt_names.extend(uris);
        if !spec.common_name.is_empty() {
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, spec.common_name);
        }
        params.extended_key_usages = match spec.usage {
            CertificateUsage::Any => Vec::new(),
            CertificateUsage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            CertificateUsage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        };
        if spec.is_expired {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        }
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("an authority signs");
        Certificate { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Certificate {
    /// Its two files in `folder`, the certificate first.
    pub fn write(&self, folder: &Path, stem: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join(format!("{stem}.crt")), folder.join(format!("{stem}.key")));
        for (file, text) in [(&certificate, &self.certificate), (&key, &self.key)] {
            std::fs::write(file, text).expect("a file of the test's own can be written");
        }
        (certificate, key)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
