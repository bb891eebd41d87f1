//! Tasks that have begun, a client, and servers that misbehave byte by byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::networks::AllowedNetworks;
use punctual_core::run_end::{RunFailure, RunOutcome};
use punctual_core::state::{Position, State};
use punctual_core::task::{Callback, CallbackBody, NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_testkit::fixtures::{self, START};
use punctual_worker::answer::{WebhookResult, judge};
use punctual_worker::{SigningKeys, WebhookConfig, Webhooks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Long enough for anything that should succeed.
pub const AMPLE: Duration = Duration::from_secs(20);
/// Short enough to wait for a timeout.
pub const BRIEF: Duration = Duration::from_millis(300);

/// A task with this callback, in its second attempt.
pub fn task(url: &str) -> Task {
    let NewTask { id, lane, created_at, execute_at, expires_at, mut body, trail, .. } = fixtures::task().build();
    body.callback = Some(Callback {
        url: url.to_owned(),
        headers: [("x-team".to_owned(), "billing".to_owned())].into(),
        body: CallbackBody::Payload,
    });
    Task {
        id,
        lane: Arc::new(Lane { id: LaneId::new(1), key: lane }),
        position: Position { state: State::Running, version: 7, attempts: 2, crashes: 0, cancel_requested: false },
        created_at,
        execute_at,
        due_at: execute_at,
        expires_at,
        hold: None,
        worker: None,
        started_at: None,
        completed_at: None,
        result: None,
        progress: None,
        checkpoint: None,
        body,
        trail,
    }
}

/// A client that may call loopback.
pub fn webhooks() -> Webhooks {
    client(AllowedNetworks::loopback())
}

/// A client that may call these networks.
pub fn client(allowed: AllowedNetworks) -> Webhooks {
    configured(WebhookConfig { allowed, ..WebhookConfig::default() })
}

/// A client with this configuration and ample time to connect.
pub fn configured(config: WebhookConfig) -> Webhooks {
    // Only the first of many tests installs it.
    rustls::crypto::ring::default_provider().install_default().ok();
    Webhooks::new(&WebhookConfig { connect_timeout: AMPLE, ..config })
}

/// The call of a URL, with ample time.
pub async fn call(url: &str) -> RunOutcome {
    call_within(url, AMPLE).await
}

/// The call of a URL.
pub async fn call_within(url: &str, time: Duration) -> RunOutcome {
    judged(webhooks().call(&task(url), None, &SigningKeys::NONE, now(), Instant::now() + time).await)
}

pub fn judged(result: WebhookResult) -> RunOutcome {
    judge(result, now())
}

pub fn now() -> Timestamp {
    START
}

#[track_caller]
pub fn failed(outcome: RunOutcome) -> RunFailure {
    match outcome {
        RunOutcome::Failed(failed) => failed,
        other => panic!("should have failed: {other:?}"),
    }
}

/// The code, the status, and whether it is retryable.
#[track_caller]
pub fn failure(outcome: RunOutcome) -> (String, Option<u16>, bool) {
    let failed = failed(outcome);
    (failed.error.code.into_owned(), failed.http_status, failed.retryable)
}

/// A server that runs `behave` on each connection.
pub struct Raw {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Raw {
    pub async fn serve<F>(behave: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                // The test sees from its own side how a connection ends.
                let behaving = behave(stream);
                tokio::spawn(async move { behaving.await.ok() });
            }
        });
        Self { address, accepted }
    }

    /// Answers every request with these bytes and closes.
    pub async fn saying(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into().into();
        Self::serve(move |mut stream| {
            let bytes = Arc::clone(&bytes);
            async move {
                read_request(&mut stream).await?;
                stream.write_all(&bytes).await?;
                stream.shutdown().await
            }
        })
        .await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Reads a request with the body that the test's tasks have.
pub async fn read_request(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n{\"n\": 1}") {
        if stream.read_buf(&mut seen).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// A server that answers 200 with a result once it is opened, and counts the calls.
pub struct Gate {
    server: Raw,
    called: tokio::sync::watch::Receiver<usize>,
    opened: tokio::sync::watch::Sender<bool>,
}

impl Gate {
    pub async fn start() -> Self {
        let (opened, waits) = tokio::sync::watch::channel(false);
        let (calls, called) = tokio::sync::watch::channel(0);
        let calls = Arc::new(calls);
        let server = Raw::serve(move |mut stream| {
            let (mut waits, calls) = (waits.clone(), Arc::clone(&calls));
            async move {
                read_request(&mut stream).await?;
                calls.send_modify(|calls| *calls += 1);
                waits.wait_for(|opened| *opened).await.map_err(std::io::Error::other)?;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1").await
            }
        })
        .await;
        Self { server, called, opened }
    }

    pub fn target(&self) -> String {
        self.server.url("")
    }

    /// How many calls there were.
    pub fn calls(&self) -> usize {
        *self.called.borrow()
    }

    pub async fn until_called(&self, times: usize) {
        let mut called = self.called.clone();
        tokio::time::timeout(AMPLE, called.wait_for(|calls| *calls >= times)).await.expect("it is called").unwrap();
    }

    pub fn open(&self) {
        self.opened.send_replace(true);
    }
}
