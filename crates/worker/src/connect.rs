//! Connects to targets: at addresses that the guard has passed, with TLS where the URL says so, and
//! within a bounded time.
//!
//! The HTTP client asks for a connection when it has no idle one. Invariant: looking up the name,
//! connecting and the handshake together take no longer than the bound.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tower_service::Service;

use crate::guard::NetworkGuard;

/// How often a silent connection is checked, and after how many checks it is taken for broken.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// A connection on which nothing that was sent is confirmed for this long is broken.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(30);

type Unbounded = HttpsConnector<HttpConnector<NetworkGuard>>;
type BoxError = Box<dyn Error + Send + Sync>;

/// Connects to targets (see the module). Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connector {
    unbounded: Unbounded,
    within: Duration,
}

impl Connector {
    /// Connects to what `guard` passes, within this time. A target with TLS speaks HTTP/2 if it
    /// can.
    pub(crate) fn new(guard: NetworkGuard, tls: ClientConfig, within: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(guard);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(within));
        tcp.set_keepalive(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        tcp.set_tcp_user_timeout(Some(CONFIRMED_WITHIN));
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls);
        Self { unbounded: tls.https_or_http().enable_all_versions().wrap_connector(tcp), within }
    }
}

impl Service<Uri> for Connector {
    type Response = <Unbounded as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.unbounded.poll_ready(context)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let (connected, within) = (self.unbounded.call(target), self.within);
        Box::pin(async move { timeout(within, connected).await.map_err(|_| "connecting took too long")? })
    }
}

/// Trusts the machine's root certificates.
pub(crate) fn trust_machine() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        // Plain http needs none.
        tracing::warn!(errors = ?found.errors, "no root certificates were found: https webhooks will fail");
    }
    ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}
