//! Opens connections to addresses that the guard has passed.
//!
//! The connector calls it. It is a trait so that a test can count what would be connected to.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

/// How often a silent connection is checked, and after how many checks it is taken for broken.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;
/// A connection on which nothing that was sent is confirmed for this long is broken.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// A connection that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

/// Opens connections (see the module).
pub trait Dial: Clone + Send + Sync + 'static {
    /// Connects to the first of these addresses that answers.
    fn dial(&self, addresses: Vec<SocketAddr>) -> Dialing;
}

/// Connects by TCP.
#[derive(Clone, Debug)]
pub struct TcpDial {
    within: Duration,
}

impl TcpDial {
    /// Connects within this time, in all.
    pub fn new(within: Duration) -> Self {
        Self { within }
    }
}

impl Dial for TcpDial {
    fn dial(&self, addresses: Vec<SocketAddr>) -> Dialing {
        let mut tcp = HttpConnector::new_with_resolver(CheckedAddresses(addresses));
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.within));
        tcp.set_keepalive(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        tcp.set_tcp_user_timeout(Some(CONFIRMED_WITHIN));
        // It would read an address in the URL itself. This one has a name, so that it connects to
        // what was checked and to nothing else.
        let connecting = tcp.call(Uri::from_static("http://checked"));
        Box::pin(async move { Ok(connecting.await?) })
    }
}

/// Resolves a name to these addresses, once.
#[derive(Clone)]
struct CheckedAddresses(Vec<SocketAddr>);

impl Service<Name> for CheckedAddresses {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        std::future::ready(Ok(std::mem::take(&mut self.0).into_iter()))
    }
}
