//! Calls webhooks: one pooled client for all targets.
//!
//! Nothing a target does takes longer than the task's timeout, fills more memory than a
//! result may, or leads the request anywhere else: no redirects, no proxies, no cookies,
//! no decompression.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::networks::AllowedNetworks;
use punctual_core::task::{Task, limits};
use punctual_core::time::Timestamp;
use reqwest::header::{HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{Client, Response, redirect};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::fault::classify;
use crate::guard::Guard;
use crate::outcome::{Answer, Answered, Fault};
use crate::request;

/// How webhooks are called.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The special networks that may be called.
    pub allowed: AllowedNetworks,
    /// How long a connection may take to be made, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// Bytes read of an answer; a larger one has no result. No more than [`limits::RESULT`] is of use.
    pub response_bytes: usize,
    /// Connections kept open for each target while they are not used.
    pub idle_per_target: usize,
    /// For how long they are kept.
    pub idle_timeout: Duration,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            allowed: AllowedNetworks::none(),
            connect_timeout: Duration::from_secs(5),
            response_bytes: limits::RESULT,
            idle_per_target: 64,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Signs what is sent to a tenant's webhooks.
pub trait Signer: Send + Sync {
    /// The value of `webhook-signature` for a message with this id, sent at this second with this body; none where
    /// the tenant has no secret.
    fn sign(&self, tenant: &str, id: &str, timestamp: i64, body: &[u8]) -> Option<String>;
}

/// The client that calls webhooks. Cheap to clone.
#[derive(Clone)]
pub struct Webhooks {
    client: Client,
    guard: Guard,
    response_bytes: usize,
    signer: Option<Arc<dyn Signer>>,
}

/// The client could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the webhook client cannot be built: {0}")]
pub struct NoClient(#[from] reqwest::Error);

const COMPLETION: HeaderName = HeaderName::from_static("punctual-completion");
/// How long the body of a refusal is waited for: it explains, but it decides nothing.
const EXPLANATION: Duration = Duration::from_secs(2);

impl Webhooks {
    /// A client. The process must have installed a `rustls` provider.
    pub fn new(config: WebhookConfig, signer: Option<Arc<dyn Signer>>) -> Result<Self, NoClient> {
        let response_bytes = config.response_bytes.min(limits::RESULT);
        let guard = Guard::new(config.allowed);
        let builder = || {
            Client::builder()
                .redirect(redirect::Policy::none())
                .no_proxy()
                .referer(false)
                .dns_resolver(guard.clone())
                .connect_timeout(config.connect_timeout)
                .pool_max_idle_per_host(config.idle_per_target)
                .pool_idle_timeout(config.idle_timeout)
        };
        let client = builder().build().or_else(|error| {
            // The usual reason is a machine without root certificates. Whoever calls plain http needs none.
            tracing::warn!(error = ?error, "no root certificates were found: https webhooks will fail");
            builder().tls_certs_only([]).build()
        })?;
        Ok(Self { client, guard, response_bytes, signer })
    }

    /// Calls the webhook of `task`, at `now` by the store's clock and until `deadline` by ours.
    pub async fn call(&self, task: &Task, now: Timestamp, deadline: Instant) -> Answer {
        let broken = |status, fault| Answer::Broken { status, fault };
        let Some(callback) = &task.body.callback else { return broken(None, Fault::NoTarget) };
        let Ok(url) = Url::parse(&callback.url) else { return broken(None, Fault::NoTarget) };
        if self.guard.blocks(&url) {
            return broken(None, Fault::Blocked);
        }
        let headers = request::headers(task, callback, now, self.signer.as_deref());
        let body = task.body.payload.get().to_owned();
        let request = self.client.post(url).headers(headers).body(body);
        let response = match timeout_at(deadline, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return broken(None, classify(&error)),
            Err(_) => return broken(None, Fault::Timeout),
        };
        let status = response.status().as_u16();
        let asynchronous = word(response.headers(), &COMPLETION).is_some_and(|word| word.eq_ignore_ascii_case("async"));
        let retry_after = word(response.headers(), &RETRY_AFTER);
        let answered = |body| Answer::Answered(Answered { status, asynchronous, retry_after, body });
        if (200..300).contains(&status) && !asynchronous {
            return match timeout_at(deadline, self.read(response)).await {
                Ok(Read::Whole(body)) => answered(Some(body)),
                Ok(Read::TooLarge(_)) => answered(None),
                Ok(Read::Broken(fault)) => broken(Some(status), fault),
                Err(_) => broken(Some(status), Fault::Timeout),
            };
        }
        match timeout_at(deadline.min(Instant::now() + EXPLANATION), self.read(response)).await {
            Ok(Read::Whole(body) | Read::TooLarge(body)) => answered(Some(body)),
            Ok(Read::Broken(_)) | Err(_) => answered(None),
        }
    }

    async fn read(&self, mut response: Response) -> Read {
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(None) => return Read::Whole(body),
                Ok(Some(chunk)) => {
                    let room = self.response_bytes - body.len();
                    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                    // Dropping the rest closes the connection: an endless body ends here.
                    if chunk.len() > room {
                        return Read::TooLarge(body);
                    }
                }
                Err(error) => return Read::Broken(classify(&error)),
            }
        }
    }
}

/// A body, read as far as it may.
enum Read {
    Whole(Vec<u8>),
    TooLarge(Vec<u8>),
    Broken(Fault),
}

fn word(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(|value| value.trim().to_owned())
}
