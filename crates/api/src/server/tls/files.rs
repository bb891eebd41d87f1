//! The files of a node's TLS identity, and what the handshake makes of them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, RootCertStore, ServerConfig};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::certificate;

/// More than any chain of certificates has.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a connection may speak, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where a node's TLS identity is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of this node, and behind it those that lead to its root; PEM.
    pub cert: PathBuf,
    /// The private key of that certificate; PEM.
    pub key: PathBuf,
    /// The roots that have signed the certificates of clients; PEM.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
}

/// Whether clients show certificates of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// They are not asked for one.
    #[default]
    Off,
    /// One without a certificate is let in. A certificate that is shown must be good.
    Optional,
    /// Only those with a good one are let in.
    Required,
}

/// Why a TLS identity cannot be used: a sentence that names the setting and its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsFault(String);

/// What a handshake needs.
pub(super) struct TlsMaterial {
    pub config: Arc<ServerConfig>,
    /// Of the node's certificate, in seconds since 1970.
    pub expires_at: u64,
}

/// The files as they were at one time.
pub(super) struct TlsTexts<'f> {
    files: &'f TlsFiles,
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsFiles {
    /// Reads all of the files.
    pub(super) fn read(&self) -> Result<TlsTexts<'_>, TlsFault> {
        let client_ca = self.client_ca.as_deref().map(|file| read("client_ca_file", file));
        Ok(TlsTexts {
            files: self,
            cert: read("cert_file", &self.cert)?,
            key: read("key_file", &self.key)?,
            client_ca: client_ca.transpose()?,
        })
    }
}

impl TlsTexts<'_> {
    /// Distinguishes these texts from others, without keeping the key.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for text in [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten() {
            digest.update(text.len().to_be_bytes());
            digest.update(text);
        }
        digest.finalize().into()
    }

    /// Checks the texts, and makes what a handshake needs.
    pub(super) fn material(&self, client_auth: ClientAuth) -> Result<TlsMaterial, TlsFault> {
        let TlsFiles { cert: cert_file, key: key_file, .. } = self.files;
        let chain = certificates("cert_file", cert_file, &self.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| match error {
            pem::Error::NoItemsFound => fault(
                "key_file",
                key_file,
                "has no private key in it; it must be PEM, and not encrypted with a password",
            ),
            // The error of the parser may quote a line of the key.
            _ => fault("key_file", key_file, "is not PEM"),
        })?;
        let expires_at = certificate::expires_at(&chain[0]).map_err(|error| {
            fault("cert_file", cert_file, &format!("has a certificate that cannot be read: {error}"))
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("invariant: the provider supports both versions");
        let builder = match self.verifier(client_auth)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => TlsFault(format!(
                "the key in tls.key_file ({}) is not that of the first certificate in tls.cert_file ({})",
                key_file.display(),
                cert_file.display()
            )),
            Error::InvalidCertificate(_) => fault("cert_file", cert_file, &format!("cannot be used: {error}")),
            _ => fault("key_file", key_file, &format!("cannot be used: {error}")),
        })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        if client_auth != ClientAuth::Off {
            // A resumed session would not check the client's certificate again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(TlsMaterial { config: Arc::new(config), expires_at })
    }

    fn verifier(&self, client_auth: ClientAuth) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsFault> {
        let (Some(text), Some(file)) = (&self.client_ca, &self.files.client_ca) else { return Ok(None) };
        let unusable =
            |error: &dyn std::fmt::Display| fault("client_ca_file", file, &format!("cannot be used: {error}"));
        let mut roots = RootCertStore::empty();
        for root in certificates("client_ca_file", file, text)? {
            roots.add(root).map_err(|error| unusable(&error))?;
        }
        let provider = Arc::new(ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = match client_auth {
            ClientAuth::Off => return Ok(None),
            ClientAuth::Optional => builder.allow_unauthenticated(),
            ClientAuth::Required => builder,
        };
        builder.build().map(Some).map_err(|error| unusable(&error))
    }
}

/// The certificates of a file; at least one.
fn certificates(setting: &str, file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(fault(setting, file, "has no certificate in it; it must be PEM"))
        }
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(fault(setting, file, "is not PEM")),
    }
}

fn read(setting: &str, file: &Path) -> Result<Vec<u8>, TlsFault> {
    let text = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
        Ok(text)
    };
    match text() {
        Ok(text) if text.len() as u64 > FILE_BYTES_MAX => Err(fault(setting, file, "is larger than a mebibyte")),
        Ok(text) => Ok(text),
        Err(error) => Err(fault(setting, file, &format!("cannot be read: {error}"))),
    }
}

fn fault(setting: &str, file: &Path, what: &str) -> TlsFault {
    TlsFault(format!("tls.{setting} ({}) {what}", file.display()))
}
