//! Keeps webhooks out of networks they may not reach.
//!
//! The webhook client asks it before every call. A host that is an address is checked before
//! anything is sent. A host name is resolved here (by `lookups`), and the HTTP client gets only the
//! addresses that may be called. Invariant: it connects to an address that was checked, so a name
//! that changes in between gains nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use punctual_core::callback::literal_address;
use punctual_core::networks::AllowedNetworks;
use tower_service::Service;
use url::Url;

use crate::lookups::Lookups;

tokio::task_local! {
    /// The tenant whose webhook is called. The HTTP client begins to resolve a name in the task of
    /// the call, but tells no more than the name. Names without a tenant share the bounds of one.
    pub(crate) static CALLING_TENANT: String;
}

/// The maximum number of addresses of one name that are tried; more are not worth the wait.
const ADDRESSES_MAX: usize = 16;

/// Checks targets (see the module). Cheap to clone.
#[derive(Clone)]
pub(crate) struct NetworkGuard {
    allowed: Arc<AllowedNetworks>,
    lookups: Lookups,
}

/// Why a name has no address that can be called.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// None of its addresses may be called.
    #[error("its addresses may not be called")]
    Blocked,
    /// It could not be resolved.
    #[error("{0}")]
    Unresolved(Arc<io::Error>),
}

impl NetworkGuard {
    /// Allows these networks.
    pub(crate) fn new(allowed: AllowedNetworks, lookups: Lookups) -> Self {
        Self { allowed: Arc::new(allowed), lookups }
    }

    /// Whether the URL's host is itself an address that may not be called.
    pub(crate) fn blocks(&self, url: &Url) -> bool {
        literal_address(url).is_some_and(|address| self.allowed.forbids(address))
    }

    /// Those of a name's addresses that may be called.
    pub(crate) fn pass(&self, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, ResolveError> {
        let mut found = found.peekable();
        if found.peek().is_none() {
            let error = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            return Err(ResolveError::Unresolved(Arc::new(error)));
        }
        let passed: Vec<_> = found.filter(|address| !self.allowed.forbids(address.ip())).take(ADDRESSES_MAX).collect();
        if passed.is_empty() { Err(ResolveError::Blocked) } else { Ok(passed) }
    }
}

/// Resolves names for the HTTP client.
impl Service<Name> for NetworkGuard {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ResolveError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolveError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.clone();
        let tenant = CALLING_TENANT.try_with(String::clone).unwrap_or_default();
        Box::pin(async move {
            let found = guard.lookups.find(&tenant, name.as_str()).await.map_err(ResolveError::Unresolved)?;
            Ok(guard.pass(found.into_iter())?.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard_for(allowed: AllowedNetworks) -> NetworkGuard {
        NetworkGuard::new(allowed, Lookups::by_system())
    }

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_literal_address_is_checked_however_it_is_written() {
        let guard = guard_for(AllowedNetworks::none());
        for text in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://[::1]/",
            "http://[::ffff:7f00:1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://0/",
            "http://169.254.169.254/latest/meta-data",
            "http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/",
            "http://127.0.0.1./",
            "http://169.254.169.254./",
            "http://0x7f000001./",
            "http://127.1\u{3002}/",
        ] {
            assert!(guard.blocks(&url(text)), "{text}");
        }
        for text in ["http://1.1.1.1/", "http://[2606:4700::1111]/", "http://localhost/"] {
            assert!(!guard.blocks(&url(text)), "{text}");
        }
        assert!(!guard_for(AllowedNetworks::loopback()).blocks(&url("http://127.0.0.1/")));
    }

    #[test]
    fn only_addresses_that_may_be_called_pass() {
        let guard = guard_for(AllowedNetworks::none());
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect()
        };
        let mixed = addresses(&["10.0.0.1", "1.1.1.1", "::1", "::ffff:127.0.0.1", "2606:4700::1111"]);
        assert_eq!(guard.pass(mixed.into_iter()).unwrap(), addresses(&["1.1.1.1", "2606:4700::1111"]));
        assert!(matches!(guard.pass(addresses(&["127.0.0.1", "::1"]).into_iter()), Err(ResolveError::Blocked)));
        assert!(matches!(guard.pass(std::iter::empty()), Err(ResolveError::Unresolved(_))));
        let many = vec![addresses(&["1.1.1.1"])[0]; 1_000];
        assert_eq!(guard.pass(many.into_iter()).unwrap().len(), ADDRESSES_MAX);
    }

    #[tokio::test]
    async fn the_resolver_hands_out_nothing_forbidden() {
        let resolve = |allowed, name: &str| guard_for(allowed).call(name.parse().unwrap());
        let refused = resolve(AllowedNetworks::none(), "localhost").await;
        assert!(matches!(refused, Err(ResolveError::Blocked)));
        // Machines resolve a name with a final dot differently; none of its addresses may be
        // forbidden.
        let dotted = resolve(AllowedNetworks::none(), "localhost.").await;
        assert!(dotted.into_iter().flatten().all(|address| !address.ip().is_loopback()));
        let passed = resolve(AllowedNetworks::loopback(), "localhost").await.unwrap();
        assert!(passed.map(|address| address.ip()).all(|ip| ip.is_loopback()));
    }
}
