//! Connects to targets: at addresses that the guard has passed, with TLS where the URL says so, and
//! within a bounded time.
//!
//! An HTTP client asks for a connection when it has no idle one. Invariant: looking up the name,
//! connecting and the handshake together take no longer than the bound.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::dial::{BoxError, Dial, Dialing, TcpDial};
use crate::guard::{NetworkGuard, calling_tenant};

/// Connects to targets (see the module). Cheap to clone.
#[derive(Clone)]
pub struct GuardedConnector<D = TcpDial> {
    unbounded: HttpsConnector<GuardedTcp<D>>,
    within: Duration,
}

impl GuardedConnector {
    /// Connects to what `guard` passes, within this time. A target with TLS speaks HTTP/2 if it
    /// can.
    pub fn new(guard: NetworkGuard, tls: ClientConfig, within: Duration) -> Self {
        Self::with_dial(guard, tls, within, TcpDial::new(within))
    }
}

impl<D: Dial> GuardedConnector<D> {
    /// The same, with another way to open a connection.
    pub fn with_dial(guard: NetworkGuard, tls: ClientConfig, within: Duration, dial: D) -> Self {
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls);
        Self { unbounded: tls.https_or_http().enable_all_versions().wrap_connector(GuardedTcp { guard, dial }), within }
    }
}

impl<D: Dial> Service<Uri> for GuardedConnector<D> {
    type Response = <HttpsConnector<GuardedTcp<D>> as Service<Uri>>::Response;
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

/// Connects without TLS.
#[derive(Clone)]
pub struct GuardedTcp<D> {
    guard: NetworkGuard,
    dial: D,
}

impl<D: Dial> Service<Uri> for GuardedTcp<D> {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Dialing;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Dialing {
        let (guard, dial, tenant) = (self.guard.clone(), self.dial.clone(), calling_tenant());
        Box::pin(async move {
            let host = target.host().ok_or("the URL has no host")?;
            let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("https") { 443 } else { 80 });
            let addresses = guard.addresses(&tenant, host, port).await?;
            dial.dial(addresses).await
        })
    }
}

/// Trusts the machine's root certificates.
pub fn trust_machine() -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        // Plain http needs none.
        tracing::warn!(errors = ?found.errors, "no root certificates were found: https webhooks will fail");
    }
    ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}

#[cfg(test)]
mod tests;
