//! TLS to PostgreSQL: which mode is asked for, and how a server's certificate is checked.
//!
//! The modes are those of libpq. `require` encrypts and accepts any certificate, unless
//! `sslrootcert` names roots. `verify-ca` needs a certificate that one of the roots has signed.
//! `verify-full` also needs one for the host that was connected to. [`super::Address`] reads them
//! from the URL and connects.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::client_identity::ClientIdentityFiles;

/// Stands in `sslrootcert` for the roots that this machine trusts.
const SYSTEM: &str = "system";

/// The ALPN protocol of PostgreSQL.
const PROTOCOL: &[u8] = b"postgresql";

/// The `sslmode` of a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl TlsMode {
    /// The mode with this name.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        match name {
            "disable" => Ok(TlsMode::Disable),
            "prefer" => Ok(TlsMode::Prefer),
            "require" => Ok(TlsMode::Require),
            "verify-ca" => Ok(TlsMode::VerifyCa),
            "verify-full" => Ok(TlsMode::VerifyFull),
            _ => Err("sslmode must be disable, prefer, require, verify-ca or verify-full".to_owned()),
        }
    }

    /// The mode for the driver.
    pub(crate) fn of_driver(self) -> SslMode {
        match self {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        }
    }
}

/// The connector for a mode. `roots` is the value of `sslrootcert`, `identity` what is shown to a
/// server that asks for a certificate.
pub(crate) fn connector(
    mode: TlsMode,
    roots: Option<&str>,
    identity: Option<&ClientIdentityFiles>,
) -> Result<MakeRustlsConnect, String> {
    if identity.is_some() && matches!(mode, TlsMode::Disable | TlsMode::Prefer) {
        return Err("sslcert works only with sslmode=verify-full, verify-ca or require".to_owned());
    }
    let check = match (mode, roots) {
        (TlsMode::Disable | TlsMode::Prefer, Some(_)) => {
            return Err("sslrootcert works only with sslmode=verify-full, verify-ca or require".to_owned());
        }
        (TlsMode::VerifyCa | TlsMode::VerifyFull, None) => {
            let advice = "needs sslrootcert=FILE, the root of the server's certificate, or sslrootcert=system";
            let mode = if mode == TlsMode::VerifyCa { "verify-ca" } else { "verify-full" };
            return Err(format!("sslmode={mode} {advice}"));
        }
        (TlsMode::Require | TlsMode::VerifyCa, Some(SYSTEM)) => {
            // A public authority signs certificates for anyone.
            return Err("sslrootcert=system needs sslmode=verify-full".to_owned());
        }
        (TlsMode::Disable | TlsMode::Prefer | TlsMode::Require, None) => CertificateCheck::Nothing,
        (TlsMode::Require | TlsMode::VerifyCa, Some(roots)) => CertificateCheck::Chain(read(roots)?),
        (TlsMode::VerifyFull, Some(roots)) => CertificateCheck::ChainAndName(read(roots)?),
    };
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Verifier { check, algorithms: provider.signature_verification_algorithms });
    Ok(MakeRustlsConnect::new(config(provider, verifier, identity)?))
}

fn config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<Verifier>,
    identity: Option<&ClientIdentityFiles>,
) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("invariant: the provider supports the safe versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(files) => {
            let (chain, key) = files.read()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| files.fault(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

/// The roots of a file, or those of this machine.
fn read(name: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if name == SYSTEM {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let advice = "sslrootcert=system finds no root on this machine; name a file with sslrootcert=FILE";
        return if roots.is_empty() { Err(advice.to_owned()) } else { Ok(roots) };
    }
    let unreadable = |reason: String| format!("sslrootcert={name} cannot be read: {reason}");
    let text = std::fs::read(name).map_err(|error| unreadable(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() { Err(unreadable("there is no certificate in it".to_owned())) } else { Ok(roots) }
}

/// Checks a server's certificate.
#[derive(Debug)]
struct Verifier {
    check: CertificateCheck,
    algorithms: WebPkiSupportedAlgorithms,
}

/// What is checked.
#[derive(Debug)]
enum CertificateCheck {
    Nothing,
    Chain(RootCertStore),
    ChainAndName(RootCertStore),
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (CertificateCheck::Chain(roots) | CertificateCheck::ChainAndName(roots)) = &self.check else {
            return Ok(ServerCertVerified::assertion());
        };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, self.algorithms.all)?;
        if matches!(self.check, CertificateCheck::ChainAndName(_)) {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.check {
            // The owner of the key was not checked, so a signature proves nothing. The certificate
            // may also be of a kind that cannot be read.
            CertificateCheck::Nothing => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls12_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.check {
            CertificateCheck::Nothing => Ok(HandshakeSignatureValid::assertion()),
            _ => verify_tls13_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Why TLS was refused.
pub(crate) enum Refusal {
    /// The server does not speak TLS.
    Plain,
    /// Its certificate is not accepted, and what to do about it.
    Certificate(String),
    /// It does not accept this node's certificate, and what it says.
    ClientCertificate(String),
}

/// Why TLS was refused, if that is why the connection failed.
pub(crate) fn refusal(error: &tokio_postgres::Error) -> Option<Refusal> {
    let source = std::error::Error::source(error)?;
    if source.to_string() == "server does not support TLS" {
        return Some(Refusal::Plain);
    }
    let inner = source.downcast_ref::<std::io::Error>()?.get_ref()?;
    match inner.downcast_ref::<Error>()? {
        Error::InvalidCertificate(fault) => Some(Refusal::Certificate(advice(fault))),
        Error::AlertReceived(alert) => rejected(*alert).map(|why| Refusal::ClientCertificate(why.to_owned())),
        _ => None,
    }
}

/// What a server says with an alert about the certificate of its client.
fn rejected(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::CertificateExpired => Some("it has expired; renew it"),
        AlertDescription::UnknownCA => Some("no root in ssl_ca_file there has signed it"),
        AlertDescription::CertificateRequired => {
            Some("it asks for one; name its file in sslcert and its key in sslkey")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => Some("it is revoked, or not one for a client; the server's log has more"),
        _ => None,
    }
}

fn advice(fault: &CertificateError) -> String {
    match fault {
        CertificateError::UnknownIssuer => {
            "no root that is trusted has signed it; name the file with its root in sslrootcert".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host; connect by a name that it has among its subject alternative names, or say \
             sslmode=verify-ca if any server of that root will do"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired; renew it".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, by the clock of this machine".to_owned()
        }
        other => format!("{other}; give the server one that its root has signed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(mode: &str, roots: Option<&str>) -> String {
        TlsMode::parse(mode).and_then(|mode| connector(mode, roots, None)).err().expect("it is refused")
    }

    #[test]
    fn a_wrong_combination_is_refused_with_advice() {
        let modes = "sslmode must be disable, prefer, require, verify-ca or verify-full";
        assert_eq!(refused("allow", None), modes);
        assert_eq!(refused("verify_full", None), modes);
        let needs = "needs sslrootcert=FILE, the root of the server's certificate, or sslrootcert=system";
        assert_eq!(refused("verify-full", None), format!("sslmode=verify-full {needs}"));
        assert_eq!(refused("verify-ca", None), format!("sslmode=verify-ca {needs}"));
        for mode in ["disable", "prefer"] {
            assert!(refused(mode, Some("root.crt")).starts_with("sslrootcert works only with"));
        }
        assert_eq!(refused("require", Some("system")), "sslrootcert=system needs sslmode=verify-full");
    }

    #[test]
    fn a_file_of_roots_must_hold_some() {
        let error = refused("verify-full", Some("/nowhere/root.crt"));
        assert!(error.starts_with("sslrootcert=/nowhere/root.crt cannot be read: "), "{error}");
        let empty = tempfile::NamedTempFile::new().unwrap();
        let error = refused("require", empty.path().to_str());
        assert!(error.ends_with("cannot be read: there is no certificate in it"), "{error}");
    }
}
