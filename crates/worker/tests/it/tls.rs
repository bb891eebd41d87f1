//! Targets with TLS: a certificate is trusted for its own host, if its root is trusted.
//!
//! `localhost.crt` is signed with its own key, `localhost.key`. Only the child processes below
//! trust it as a root.

use punctual_core::run_end::RunOutcome;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::support::{call, failed, webhooks};

/// A server that answers 204 over TLS, and counts the requests that got through.
struct Secure {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Secure {
    fn start(ip: &str) -> Self {
        webhooks();
        let config = localhost();
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (config, counted) = (Arc::new(config), Arc::clone(&requests));
        std::thread::spawn(move || {
            for mut tcp in listener.incoming().flatten() {
                let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = Stream::new(&mut session, &mut tcp);
                let mut seen = [0; 4_096];
                // The tests see from the client's side that a handshake failed.
                if stream.read(&mut seen).is_ok_and(|length| length > 0) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
                }
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.address)
    }
}

#[tokio::test]
async fn an_unknown_certificate_is_not_trusted() {
    let server = Secure::start("127.0.0.1");
    let failed = failed(call(&server.url()).await);
    assert_eq!((failed.error.code.as_ref(), failed.http_status, failed.retryable), ("tls_failed", None, true));
    assert!(failed.error.message.contains("certificate"), "{}", failed.error.message);
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
}

/// What a server with the certificate speaks.
pub fn localhost() -> ServerConfig {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("localhost.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("localhost.key")).unwrap();
    ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap()
}

/// Set for a child process that trusts the certificate.
const TRUSTING: &str = "PUNCTUAL_TEST_TRUSTING";

/// Whether this process trusts the certificate. If not, the test has passed in a child process that
/// does.
pub fn trusts_localhost(test: &str) -> bool {
    if std::env::var_os(TRUSTING).is_some() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test]).env(TRUSTING, "1");
    again.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/localhost.crt"));
    let output = again.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
    false
}

#[tokio::test]
async fn a_known_certificate_is_trusted_for_its_own_host() {
    if !trusts_localhost("tls::a_known_certificate_is_trusted_for_its_own_host") {
        return;
    }
    let server = Secure::start("127.0.0.1");
    for url in [server.url(), server.url().replace("127.0.0.1", "localhost")] {
        assert_eq!(
            call(&url).await,
            RunOutcome::Completed { result: None, http_status: Some(204), dropped: None },
            "{url}"
        );
    }
    let other = Secure::start("127.0.0.2");
    assert_eq!(failed(call(&other.url()).await).error.code, "tls_failed");
    assert_eq!(other.requests.load(Ordering::SeqCst), 0);
}
