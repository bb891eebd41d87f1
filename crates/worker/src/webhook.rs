//! Calls webhooks: one pooled client for all targets.
//!
//! The executor calls it. Invariant: whatever a target does, a call takes no longer than the task's
//! timeout and no more memory than a result may. It follows no redirects, uses no proxies and no
//! cookies, and decompresses nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, RETRY_AFTER};
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use punctual_core::networks::AllowedNetworks;
use punctual_core::task::{Task, limits};
use punctual_core::time::Timestamp;
use punctual_outbound::{GuardedConnector, Lookups, NetworkGuard, on_behalf_of, trust_machine};
use punctual_scheduler::dependency_results::Results;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};

use crate::answer::{CallFault, WebhookAnswer, WebhookResult};
use crate::fault::{classify, is_unread};
use crate::request;
use crate::signature::SigningKeys;
use crate::webhook_urls::WebhookUrls;

/// How webhooks are called.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// The networks that may be called.
    pub allowed: AllowedNetworks,
    /// The maximum time to connect, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// Bytes read of an answer; a larger one has no result. At most [`limits::RESULT`] are used.
    pub response_bytes: usize,
    /// The maximum number of idle connections that are kept for each target.
    pub idle_per_target: usize,
    /// How long idle connections are kept.
    pub idle_timeout: Duration,
    /// How often a connection of HTTP/2 under calls is pinged, and how long the answer may take.
    /// One that is stuck would take all calls to its target.
    pub ping_interval: Duration,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            allowed: AllowedNetworks::none(),
            connect_timeout: Duration::from_secs(5),
            response_bytes: limits::RESULT,
            idle_per_target: 64,
            idle_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(10),
        }
    }
}

/// The client that calls webhooks. Cheap to clone.
#[derive(Clone)]
pub struct Webhooks {
    urls: Arc<WebhookUrls>,
    /// Calls every allowed network.
    anywhere: GuardedClient,
    /// The same, but never this machine. A connection that one of them keeps is not for the other.
    elsewhere: GuardedClient,
    response_bytes: usize,
}

/// A client, and the guard that hands it its addresses.
#[derive(Clone)]
struct GuardedClient {
    client: Client<GuardedConnector, Full<Bytes>>,
    guard: NetworkGuard,
}

const COMPLETION: HeaderName = HeaderName::from_static("punctual-completion");
/// The calls on a connection of HTTP/2 until its target has said how many it allows. More than it
/// allows would be refused, and the first calls may come many at once.
const STREAMS_AT_FIRST: usize = 1;
/// How often a call is sent again at once that its target has refused unread.
const REPEATS: usize = 2;
/// The longest wait for the body of a refusal, which explains but decides nothing.
const EXPLANATION_WAIT: Duration = Duration::from_secs(2);

impl Webhooks {
    /// A client. The process must have installed a `rustls` provider.
    pub fn new(config: &WebhookConfig) -> Self {
        Self::with_lookups(config, &Lookups::by_system())
    }

    /// The same, with another way to look up names.
    pub(crate) fn with_lookups(config: &WebhookConfig, lookups: &Lookups) -> Self {
        let tls = trust_machine();
        Self {
            urls: Arc::default(),
            anywhere: GuardedClient::new(config, config.allowed.clone(), lookups, &tls),
            elsewhere: GuardedClient::new(config, config.allowed.clone().without_this_machine(), lookups, &tls),
            response_bytes: config.response_bytes.min(limits::RESULT),
        }
    }

    /// Calls the webhook of `task`, at `now` by the store's clock and until `deadline` by ours.
    /// `results` are those of its dependencies, and `keys` those of its tenant, which sign the
    /// request.
    pub async fn call(
        &self,
        task: &Task,
        results: Results,
        keys: &SigningKeys,
        now: Timestamp,
        deadline: Instant,
    ) -> WebhookResult {
        let broken = |status, fault| WebhookResult::Broken { status, fault };
        let Some(callback) = &task.body.callback else { return broken(None, CallFault::NoTarget) };
        let Some(target) = self.urls.parse(&callback.url) else {
            return broken(None, CallFault::NoTarget);
        };
        let GuardedClient { client, guard } = self.client_for(task);
        if guard.blocks(&target.url) {
            return broken(None, CallFault::Blocked);
        }
        let body = Bytes::from(request::body(task, callback, results));
        let headers = request::headers(task, callback, keys, now, &body);
        let request = || {
            let mut request = Request::new(Full::from(body.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = target.uri.clone();
            *request.headers_mut() = headers.clone();
            request
        };
        let sent = on_behalf_of(task.lane.key.tenant.clone(), send(client, request));
        let response = match timeout_at(deadline, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return broken(None, classify(&error)),
            Err(_) => return broken(None, CallFault::Timeout),
        };
        let status = response.status().as_u16();
        let asynchronous = word(response.headers(), &COMPLETION).is_some_and(|word| word.eq_ignore_ascii_case("async"));
        let retry_after = word(response.headers(), &RETRY_AFTER);
        let answered = |body| WebhookResult::Answered(WebhookAnswer { status, asynchronous, retry_after, body });
        let body = self.read(response.into_body());
        // An accepted run has its result later: its answer explains as little as a refusal's.
        let is_accepted = status == 202 && asynchronous;
        if (200..300).contains(&status) && !is_accepted {
            return match timeout_at(deadline, body).await {
                Ok(ResponseBody::Whole(body)) => answered(Some(body)),
                Ok(ResponseBody::TooLarge(_)) => answered(None),
                Ok(ResponseBody::Broken(fault)) => broken(Some(status), fault),
                Err(_) => broken(Some(status), CallFault::Timeout),
            };
        }
        match timeout_at(deadline.min(Instant::now() + EXPLANATION_WAIT), body).await {
            Ok(ResponseBody::Whole(body) | ResponseBody::TooLarge(body)) => answered(Some(body)),
            Ok(ResponseBody::Broken(_)) | Err(_) => answered(None),
        }
    }

    /// Never this machine for a submission by SQL, whose author need not be on it.
    fn client_for(&self, task: &Task) -> &GuardedClient {
        if task.trail.is_submitted_by_sql() { &self.elsewhere } else { &self.anywhere }
    }

    async fn read(&self, mut response: Incoming) -> ResponseBody {
        let mut body = Vec::new();
        loop {
            match response.frame().await {
                None => return ResponseBody::Whole(body),
                Some(Ok(frame)) => {
                    // Trailers are dropped.
                    let Ok(chunk) = frame.into_data() else { continue };
                    let room = self.response_bytes - body.len();
                    body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                    // Dropping the rest closes the connection: an endless body ends here.
                    if chunk.len() > room {
                        return ResponseBody::TooLarge(body);
                    }
                }
                Some(Err(error)) => return ResponseBody::Broken(classify(&error)),
            }
        }
    }
}

impl GuardedClient {
    fn new(config: &WebhookConfig, allowed: AllowedNetworks, lookups: &Lookups, tls: &ClientConfig) -> Self {
        let guard = NetworkGuard::new(allowed, lookups.clone());
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(config.idle_per_target)
            .pool_idle_timeout(config.idle_timeout)
            .timer(TokioTimer::new())
            .http2_initial_max_send_streams(STREAMS_AT_FIRST)
            .http2_keep_alive_interval(config.ping_interval)
            .http2_keep_alive_timeout(config.ping_interval)
            .build(GuardedConnector::new(guard.clone(), tls.clone(), config.connect_timeout));
        Self { client, guard }
    }
}

/// Sends a request, and sends it again if the target has not begun to read it: one that restarts,
/// or allows fewer calls than it did, refuses what is on its way.
async fn send(
    client: &Client<GuardedConnector, Full<Bytes>>,
    request: impl Fn() -> Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ClientError> {
    for _ in 0..REPEATS {
        match client.request(request()).await {
            Err(error) if is_unread(&error) => {}
            answer => return answer,
        }
    }
    client.request(request()).await
}

/// A body, read up to the bound.
enum ResponseBody {
    Whole(Vec<u8>),
    TooLarge(Vec<u8>),
    Broken(CallFault),
}

fn word(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(|value| value.trim().to_owned())
}

#[cfg(test)]
mod tests;
