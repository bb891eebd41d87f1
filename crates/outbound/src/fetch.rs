//! Fetches small documents that settings name.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Empty, Limited};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::connector::{GuardedConnector, trust_machine};
use crate::guard::NetworkGuard;

/// Fetches documents from where the guard allows. Redirects are not followed.
#[derive(Clone)]
pub struct Fetcher {
    client: Client<GuardedConnector, Empty<Bytes>>,
    within: Duration,
}

/// Why a document was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It is not there, or its server cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The server answered with this status.
    #[error("its server answered {0}")]
    Status(u16),
    /// It is larger than it may be, or broke off.
    #[error("it is too large, or broke off")]
    Body,
    /// The server took too long.
    #[error("its server took too long")]
    Timeout,
}

impl Fetcher {
    /// Fetches what `guard` passes, each document within this time.
    pub fn new(guard: NetworkGuard, within: Duration) -> Self {
        let connector = GuardedConnector::new(guard, trust_machine(), within);
        // Documents are fetched now and then: a connection would only grow old.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Self { client, within }
    }

    /// The document at a URL, of at most this many bytes.
    pub async fn get(&self, url: Uri, bytes_max: usize) -> Result<Bytes, FetchError> {
        let fetched = async {
            let answer = self.client.get(url).await.map_err(|error| FetchError::Unreachable(reason(&error)))?;
            if !answer.status().is_success() {
                return Err(FetchError::Status(answer.status().as_u16()));
            }
            let body = Limited::new(answer.into_body(), bytes_max).collect().await;
            body.map(Collected::to_bytes).map_err(|_| FetchError::Body)
        };
        timeout(self.within, fetched).await.map_err(|_| FetchError::Timeout)?
    }
}

/// The innermost cause: the outer ones say only that there is one.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}
