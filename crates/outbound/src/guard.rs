//! Keeps outbound calls out of networks they may not reach.
//!
//! The connector asks it for the addresses of every target. A host that is an address is checked as
//! it stands. A host name is resolved here (by `lookups`), and only the addresses that may be
//! called are handed out. So a name that changes between two calls, or between the check and the
//! call, gains nothing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use punctual_core::callback::literal_address;
use punctual_core::networks::AllowedNetworks;
use url::Url;

use crate::lookups::Lookups;

tokio::task_local! {
    /// The tenant on whose behalf is called. The HTTP client begins to connect in the task of the
    /// call, but tells no more than the URL.
    static CALLING_TENANT: String;
}

/// Makes `call` on behalf of a tenant: its names have the bounds of that tenant. Calls on behalf of
/// nobody share the bounds of one.
pub async fn on_behalf_of<F: Future>(tenant: String, call: F) -> F::Output {
    CALLING_TENANT.scope(tenant, call).await
}

/// On whose behalf this task calls.
pub(crate) fn calling_tenant() -> String {
    CALLING_TENANT.try_with(String::clone).unwrap_or_default()
}

/// The maximum number of addresses of one name that are tried; more are not worth the wait.
const ADDRESSES_MAX: usize = 16;

/// Checks targets (see the module). Cheap to clone.
#[derive(Clone)]
pub struct NetworkGuard {
    allowed: Arc<AllowedNetworks>,
    lookups: Lookups,
}

/// Why a target has no address that can be called.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// None of its addresses may be called.
    #[error("its addresses may not be called")]
    Blocked,
    /// It could not be resolved.
    #[error("{0}")]
    Unresolved(Arc<io::Error>),
}

impl NetworkGuard {
    /// Allows these networks.
    pub fn new(allowed: AllowedNetworks, lookups: Lookups) -> Self {
        Self { allowed: Arc::new(allowed), lookups }
    }

    /// Whether the URL's host is itself an address that may not be called. The connector refuses it
    /// too; this says it before there is a request.
    pub fn blocks(&self, url: &Url) -> bool {
        let port = url.port_or_known_default().unwrap_or_default();
        literal_address(url).is_some_and(|address| self.allowed.forbids_at(address, port))
    }

    /// The addresses of a host that may be called at this port, looked up for a tenant.
    pub async fn addresses(&self, tenant: &str, host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let found = match literal.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.lookups.find(tenant, host).await.map_err(ResolveError::Unresolved)?,
        };
        self.pass(found, port)
    }

    /// Those of a host's addresses that may be called.
    fn pass(&self, found: Vec<SocketAddr>, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
        if found.is_empty() {
            let error = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            return Err(ResolveError::Unresolved(Arc::new(error)));
        }
        let passed = found.into_iter().filter(|address| !self.allowed.forbids_at(address.ip(), port));
        let at_port = passed.map(|mut address| {
            address.set_port(port);
            address
        });
        let passed: Vec<SocketAddr> = at_port.take(ADDRESSES_MAX).collect();
        if passed.is_empty() { Err(ResolveError::Blocked) } else { Ok(passed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard_for(allowed: AllowedNetworks) -> NetworkGuard {
        NetworkGuard::new(allowed, Lookups::by_system())
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 80)).collect()
    }

    #[test]
    fn only_addresses_that_may_be_called_pass() {
        let guard = guard_for(AllowedNetworks::none());
        let mixed = addresses(&["10.0.0.1", "1.1.1.1", "::1", "::ffff:127.0.0.1", "2606:4700::1111"]);
        assert_eq!(guard.pass(mixed, 80).unwrap(), addresses(&["1.1.1.1", "2606:4700::1111"]));
        let forbidden = addresses(&["127.0.0.1", "::1"]);
        assert!(matches!(guard.pass(forbidden, 80), Err(ResolveError::Blocked)));
        assert!(matches!(guard.pass(Vec::new(), 80), Err(ResolveError::Unresolved(_))));
        let many = vec![addresses(&["1.1.1.1"])[0]; 1_000];
        assert_eq!(guard.pass(many, 80).unwrap().len(), ADDRESSES_MAX);
    }

    #[tokio::test]
    async fn a_name_has_no_forbidden_address() {
        let resolve = async |allowed, name| guard_for(allowed).addresses("t", name, 80).await;
        let refused = resolve(AllowedNetworks::none(), "localhost").await;
        assert!(matches!(refused, Err(ResolveError::Blocked)));
        // Machines resolve a name with a final dot differently; none of its addresses may be
        // forbidden.
        let dotted = resolve(AllowedNetworks::none(), "localhost.").await;
        assert!(dotted.into_iter().flatten().all(|address| !address.ip().is_loopback()));
        let passed = resolve(AllowedNetworks::loopback(), "localhost").await.unwrap();
        assert!(passed.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
    }

    #[tokio::test]
    async fn the_own_api_has_no_address_whatever_its_name() {
        let allowed = AllowedNetworks::loopback().without_own("127.0.0.1:7400".parse().unwrap(), []);
        for host in ["localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
            let at = async |port| guard_for(allowed.clone()).addresses("t", host, port).await;
            assert!(matches!(at(7400).await, Err(ResolveError::Blocked)), "{host}");
            assert!(at(7401).await.is_ok(), "{host} at another port");
        }
    }
}
