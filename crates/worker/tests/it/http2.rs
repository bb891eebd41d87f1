//! Targets with TLS: those that offer HTTP/2 are called over it, the others over HTTP/1.1. Calls
//! over HTTP/2 share a connection, and wait where the target allows few of them at once. What a
//! target refuses unread is sent again, and a connection that is stuck is given up.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use punctual_core::networks::AllowedNetworks;
use punctual_core::run_end::RunOutcome;
use punctual_worker::{SigningKeys, WebhookConfig, Webhooks};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::support::{AMPLE, BRIEF, configured, failed, judged, now, task, webhooks};
use crate::tls::{localhost, trusts_localhost};

/// The default of `webhooks.per_target`.
const MANY: usize = 64;
/// Fewer streams at once than that.
const FEW: u32 = 4;

/// A target with TLS.
#[derive(Clone)]
struct Target {
    acceptor: TlsAcceptor,
    http: Builder<TokioExecutor>,
    calls: Arc<Calls>,
}

/// Answers 204 to so many calls together, and remembers what came.
struct Calls {
    together: Barrier,
    connections: AtomicUsize,
    /// The connection of each call, and how it came.
    seen: Mutex<Vec<(usize, Version)>>,
    inside: AtomicUsize,
    inside_max: AtomicUsize,
}

impl Target {
    fn new(protocols: &[&str], together: usize) -> Self {
        // Installs the provider of TLS.
        webhooks();
        let mut tls = localhost();
        tls.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self {
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            http: Builder::new(TokioExecutor::new()),
            calls: Arc::new(Calls {
                together: Barrier::new(together),
                connections: AtomicUsize::default(),
                seen: Mutex::default(),
                inside: AtomicUsize::default(),
                inside_max: AtomicUsize::default(),
            }),
        }
    }

    /// Its URL, once it listens.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let target = self.clone();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let number = target.calls.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(target.clone().serve(tcp, number));
            }
        });
        format!("https://{address}/")
    }

    async fn serve(self, tcp: TcpStream, connection: usize) {
        // The client may have got another connection meanwhile, and drop this one.
        let Ok(tls) = self.acceptor.accept(tcp).await else { return };
        let answer = service_fn(|request| Arc::clone(&self.calls).answer(connection, request));
        // The tests see from the client's side how a call ends.
        self.http.serve_connection(TokioIo::new(tls), answer).await.ok();
    }

    /// How each call came, and over how many connections they came together.
    fn seen(&self) -> (Vec<Version>, usize) {
        let (mut connections, versions): (Vec<_>, _) = self.calls.seen.lock().iter().copied().unzip();
        connections.sort_unstable();
        connections.dedup();
        (versions, connections.len())
    }
}

impl Calls {
    async fn answer(
        self: Arc<Self>,
        connection: usize,
        request: Request<Incoming>,
    ) -> Result<Response<Empty<Bytes>>, Infallible> {
        self.seen.lock().push((connection, request.version()));
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.inside_max.fetch_max(inside, Ordering::SeqCst);
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "{\"n\": 1}");
        self.together.wait().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

/// Calls a target this often at once.
async fn call_at_once(client: &Webhooks, url: &str, times: usize) {
    let mut calls = JoinSet::new();
    for _ in 0..times {
        let (client, task) = (client.clone(), task(url));
        calls.spawn(async move {
            judged(client.call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await)
        });
    }
    for outcome in calls.join_all().await {
        assert_eq!(outcome, RunOutcome::Completed { result: None, http_status: Some(204), dropped: None });
    }
}

#[tokio::test]
async fn http_2_carries_calls_at_once_over_one_connection() {
    if !trusts_localhost("http2::http_2_carries_calls_at_once_over_one_connection") {
        return;
    }
    // It answers none of the first calls before all have come.
    let target = Target::new(&["h2", "http/1.1"], MANY);
    call_at_once(&webhooks(), &target.start().await, MANY).await;
    assert_eq!(target.seen(), (vec![Version::HTTP_2; MANY], 1));
}

#[tokio::test]
async fn calls_over_http_2_open_no_second_connection() {
    if !trusts_localhost("http2::calls_over_http_2_open_no_second_connection") {
        return;
    }
    let target = Target::new(&["h2", "http/1.1"], 1);
    let (client, url) = (webhooks(), target.start().await);
    for times in [1, MANY, 1, MANY] {
        call_at_once(&client, &url, times).await;
    }
    assert_eq!(target.seen(), (vec![Version::HTTP_2; 2 + 2 * MANY], 1));
    assert_eq!(target.calls.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_target_without_http_2_is_called_over_http_1() {
    if !trusts_localhost("http2::a_target_without_http_2_is_called_over_http_1") {
        return;
    }
    // Calls at once have a connection each.
    let target = Target::new(&["http/1.1"], MANY);
    call_at_once(&webhooks(), &target.start().await, MANY).await;
    assert_eq!(target.seen(), (vec![Version::HTTP_11; MANY], MANY));
}

#[tokio::test]
async fn calls_wait_for_the_streams_that_a_target_allows() {
    if !trusts_localhost("http2::calls_wait_for_the_streams_that_a_target_allows") {
        return;
    }
    // It answers them in groups as large as it allows, so it sees that many at once.
    let mut target = Target::new(&["h2"], FEW as usize);
    target.http.http2().max_concurrent_streams(FEW);
    let (client, url) = (webhooks(), target.start().await);
    // The first are there before the target has said how many it allows, the others after it.
    for _ in 0..2 {
        call_at_once(&client, &url, MANY).await;
    }
    assert_eq!(target.seen(), (vec![Version::HTTP_2; 2 * MANY], 1));
    assert_eq!(target.calls.inside_max.load(Ordering::SeqCst), FEW as usize);
}

#[tokio::test]
async fn a_call_that_was_refused_unread_is_sent_again() {
    if !trusts_localhost("http2::a_call_that_was_refused_unread_is_sent_again") {
        return;
    }
    let target = Target::new(&["h2"], 1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut calls = h2::server::handshake(target.acceptor.accept(tcp).await.unwrap()).await.unwrap();
        let (_, mut refused) = calls.accept().await.unwrap().unwrap();
        refused.send_reset(h2::Reason::REFUSED_STREAM);
        let (_, mut again) = calls.accept().await.unwrap().unwrap();
        let answer = Response::builder().status(StatusCode::NO_CONTENT).body(()).unwrap();
        again.send_response(answer, true).unwrap();
        // Sends the answer, and ends when the client has gone.
        while calls.accept().await.is_some() {}
    });
    let client = webhooks();
    call_at_once(&client, &url, 1).await;
    drop(client);
    served.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_stuck_is_given_up() {
    if !trusts_localhost("http2::a_connection_that_is_stuck_is_given_up") {
        return;
    }
    let allowed = AllowedNetworks::loopback();
    let client = configured(WebhookConfig { allowed, ping_interval: BRIEF, ..WebhookConfig::default() });
    let target = Target::new(&["h2"], 1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let stuck = tokio::spawn({
        let target = target.clone();
        async move {
            // The first connection stays open, and nobody reads from it.
            let (tcp, _) = listener.accept().await.unwrap();
            let stuck = h2::server::handshake(target.acceptor.accept(tcp).await.unwrap()).await.unwrap();
            let (tcp, _) = listener.accept().await.unwrap();
            target.serve(tcp, 1).await;
            drop(stuck);
        }
    });
    let lost = judged(client.call(&task(&url), None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await);
    assert_eq!(failed(lost).error.code, "connection_failed", "it has not timed out");
    call_at_once(&client, &url, 1).await;
    drop(client);
    stuck.await.unwrap();
}
