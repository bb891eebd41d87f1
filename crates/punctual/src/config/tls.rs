//! The section `[tls]`: which files the listeners' TLS identity is in, and what clients must show.
//!
//! Called by [`super::Config::new`]. The files themselves are read by `serve`.

use std::path::PathBuf;

use punctual_api::server::tls::{ClientAuth, TlsFiles};

use super::reader::SettingReader;

/// The identity; none if there is no certificate.
pub(super) fn read(read: &mut SettingReader<'_>) -> Option<TlsFiles> {
    let (cert, key) = (read.text("tls.cert_file", file), read.text("tls.key_file", file));
    let client_ca = read.text("tls.client_ca_file", file);
    let client_auth = read.word("tls.client_auth", r#""off", "optional" or "required""#);
    let asks = client_auth != ClientAuth::Off;
    let has_key = cert.is_none() || key.is_some();
    read.require("tls.cert_file", has_key, "needs tls.key_file, the private key of that certificate");
    let has_cert = key.is_none() || cert.is_some();
    read.require("tls.key_file", has_cert, "needs tls.cert_file, the certificate of that key");
    let is_used = client_ca.is_none() || asks;
    read.require("tls.client_ca_file", is_used, "is only used with tls.client_auth = \"optional\" or \"required\"");
    let advice = "needs tls.client_ca_file, the roots that have signed the certificates of clients";
    read.require("tls.client_auth", !asks || client_ca.is_some(), advice);
    read.require(
        "tls.client_auth",
        !asks || cert.is_some(),
        "needs tls.cert_file, since clients show certificates over TLS",
    );
    Some(TlsFiles { cert: cert?, key: key?, client_ca, client_auth })
}

fn file(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        "" => Ok(None),
        _ if text.contains('\0') => Err("must be the path of a file".to_owned()),
        _ => Ok(Some(PathBuf::from(text))),
    }
}
