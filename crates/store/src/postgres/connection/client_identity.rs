//! The certificate that a node shows to PostgreSQL, from the `sslcert` and `sslkey` of its URL.

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The two files, as the URL names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientIdentityFiles {
    pub cert: String,
    pub key: String,
}

/// A chain of certificates, the node's own first, and the key of that.
pub(super) type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl ClientIdentityFiles {
    /// The files of these parameters, of which a URL has both or neither.
    pub(super) fn of(cert: Option<String>, key: Option<String>) -> Result<Option<Self>, String> {
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Some(Self { cert, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("sslcert needs sslkey=FILE, the private key of that certificate".to_owned()),
            (None, Some(_)) => Err("sslkey needs sslcert=FILE, the certificate of that key".to_owned()),
        }
    }

    /// Reads both.
    pub(super) fn read(&self) -> Result<ClientIdentity, String> {
        let Self { cert, key } = self;
        let text = read("sslcert", cert)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|_| format!("sslcert={cert} cannot be read: it is not PEM"))?;
        if chain.is_empty() {
            return Err(format!("sslcert={cert} cannot be read: there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(&read("sslkey", key)?).map_err(|error| match error {
            pem::Error::NoItemsFound => format!(
                "sslkey={key} cannot be read: there is no private key in it that is PEM and not encrypted with a password"
            ),
            // The error of the parser may quote a line of the key.
            _ => format!("sslkey={key} cannot be read: it is not PEM"),
        })?;
        Ok((chain, key))
    }

    /// Why the two cannot be used together.
    pub(super) fn fault(&self, error: &rustls::Error) -> String {
        let Self { cert, key } = self;
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("the key in sslkey={key} is not that of the first certificate in sslcert={cert}")
            }
            _ => format!("sslcert={cert} and sslkey={key} cannot be used: {error}"),
        }
    }
}

fn read(parameter: &str, file: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{parameter}={file} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use punctual_testkit::certificates::Authority;

    use super::super::tls::{TlsMode, connector};
    use super::*;

    fn refused(cert: &str, key: &str) -> String {
        let files = ClientIdentityFiles { cert: cert.to_owned(), key: key.to_owned() };
        connector(TlsMode::Require, None, Some(&files)).err().expect("it is refused")
    }

    #[test]
    fn a_url_has_both_files_or_neither() {
        let name = || Some("file".to_owned());
        assert_eq!(ClientIdentityFiles::of(None, None), Ok(None));
        assert!(ClientIdentityFiles::of(name(), None).unwrap_err().starts_with("sslcert needs sslkey=FILE"));
        assert!(ClientIdentityFiles::of(None, name()).unwrap_err().starts_with("sslkey needs sslcert=FILE"));
        assert!(ClientIdentityFiles::of(name(), name()).unwrap().is_some());
    }

    #[test]
    fn a_bad_file_is_named_without_its_content() {
        let home = tempfile::tempdir().unwrap();
        let (authority, path) = (Authority::new("a root"), |name: &str| home.path().join(name).display().to_string());
        let (one, other) = (authority.issue(&["one"]), authority.issue(&["other"]));
        std::fs::write(path("one.crt"), &one.certificate).unwrap();
        std::fs::write(path("one.key"), &one.key).unwrap();
        std::fs::write(path("other.key"), &other.key).unwrap();
        std::fs::write(path("bad.key"), "-----BEGIN PRIVATE KEY-----\nhunter2!\n-----END PRIVATE KEY-----\n").unwrap();
        for (cert, key, end) in [
            ("none.crt", "one.key", "No such file or directory (os error 2)"),
            ("one.key", "one.key", "there is no certificate in it"),
            ("one.crt", "one.crt", "not encrypted with a password"),
            ("one.crt", "bad.key", "it is not PEM"),
        ] {
            let fault = refused(&path(cert), &path(key));
            assert!(fault.ends_with(end) && !fault.contains("hunter2"), "{fault}");
        }
        let fault = refused(&path("one.crt"), &path("other.key"));
        assert!(fault.contains("is not that of the first certificate"), "{fault}");
    }
}
