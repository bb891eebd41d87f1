//! Signed webhooks, checked by the reference library of Standard Webhooks.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hyper::header::{HeaderMap, HeaderName};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::ids::WebhookSecretId;
use punctual_core::json::Json;
use punctual_core::run_end::RunEnd;
use punctual_core::state::State;
use punctual_core::store::StoreError;
use punctual_core::task::CallbackBody;
use punctual_core::time::Timestamp;
use punctual_core::webhook_secrets::{LiveSecret, SecretCreation, SigningSecret, WebhookSecrets};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{self, TENANT};
use punctual_testkit::sink::{Hit, Sink};
use punctual_worker::SigningKeys;
use standardwebhooks::Webhook;
use tokio::time::Instant;

use crate::harness::Harness;
use crate::support::{AMPLE, task, webhooks};

fn secret(byte: u8) -> SigningSecret {
    SigningSecret::from_bytes(vec![byte; 32])
}

/// What a receiver with this secret says about a request.
fn verdict(secret: &SigningSecret, hit: &Hit) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &hit.headers {
        headers.append(HeaderName::try_from(name.as_str()).unwrap(), value.parse().unwrap());
    }
    let receiver = Webhook::new(&secret.reveal()).unwrap();
    receiver.verify(&hit.body, &headers).map_err(|fault| fault.to_string())
}

/// Receivers refuse what is older than five minutes.
fn real_time() -> Timestamp {
    SystemClock.now()
}

#[tokio::test]
async fn the_reference_library_accepts_every_body() {
    let (sink, keys) = (Sink::start(), SigningKeys::new(&[secret(1)]));
    let large = format!("\"{}\"", "é".repeat(100_000));
    let payloads =
        ["null", "\"\"", "{}", r#"{ "b" : 1.50,  "a":[ true , null ] }"#, "\"é \\ud83d\\ude00.1.2\"", &large];
    for (number, payload) in payloads.into_iter().enumerate() {
        for body in [CallbackBody::Payload, CallbackBody::Envelope] {
            let path = format!("/{number}/{body:?}");
            let mut task = task(&sink.url(&path));
            task.body.payload = Json::parse(payload).unwrap();
            task.body.callback.as_mut().unwrap().body = body;
            webhooks().call(&task, Some(Vec::new()), &keys, real_time(), Instant::now() + AMPLE).await;
            let mut hit = sink.hits(&path).remove(0);
            assert_eq!(hit.header("webhook-id"), task.id.to_string());
            assert_eq!(verdict(&secret(1), &hit), Ok(()), "{path}");
            assert!(verdict(&secret(2), &hit).is_err(), "{path} with another secret");
            hit.body.push(b' ');
            assert!(verdict(&secret(1), &hit).is_err(), "{path} with another body");
        }
    }
}

#[tokio::test]
async fn either_of_two_secrets_verifies() {
    let sink = Sink::start();
    let keys = SigningKeys::new(&[secret(1), secret(2)]);
    webhooks().call(&task(&sink.url("/")), None, &keys, real_time(), Instant::now() + AMPLE).await;
    let hit = sink.hits("/").remove(0);
    assert_eq!(hit.header("webhook-signature").split(' ').count(), 2);
    assert_eq!((verdict(&secret(1), &hit), verdict(&secret(2), &hit)), (Ok(()), Ok(())));
    assert!(verdict(&secret(3), &hit).is_err());
}

#[tokio::test]
async fn a_retry_is_signed_for_its_own_time() {
    let (sink, keys) = (Sink::start(), SigningKeys::new(&[secret(1)]));
    let (task, begun) = (task(&sink.url("/")), real_time());
    for attempt in 0..2 {
        webhooks().call(&task, None, &keys, begun.plus_millis(attempt * 1_000), Instant::now() + AMPLE).await;
    }
    let hits = sink.hits("/");
    let of = |name: &str| hits.iter().map(|hit| hit.header(name).to_owned()).collect::<Vec<_>>();
    assert_eq!(of("webhook-id"), vec![task.id.to_string(); 2]);
    let seconds: Vec<i64> = of("webhook-timestamp").iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(seconds[1] - seconds[0], 1);
    assert_ne!(of("webhook-signature")[0], of("webhook-signature")[1]);
    assert!(hits.iter().all(|hit| verdict(&secret(1), hit).is_ok()));
}

/// Secrets whose reads are counted, and fail on demand.
struct Troubled {
    inner: Arc<dyn WebhookSecrets>,
    reads: Mutex<Vec<usize>>,
    /// The next reads fail in these ways; a read with none never returns.
    faults: Mutex<VecDeque<Option<StoreError>>>,
}

#[async_trait]
impl WebhookSecrets for Troubled {
    async fn create_secret(&self, live: LiveSecret, secret: SigningSecret) -> Result<SecretCreation, StoreError> {
        self.inner.create_secret(live, secret).await
    }

    async fn list_secrets(&self, tenant: &str) -> Result<Vec<LiveSecret>, StoreError> {
        self.inner.list_secrets(tenant).await
    }

    async fn delete_secret(&self, tenant: &str, id: WebhookSecretId) -> Result<bool, StoreError> {
        self.inner.delete_secret(tenant, id).await
    }

    async fn signing_secrets(&self, tenants: Vec<String>) -> Result<HashMap<String, Vec<SigningSecret>>, StoreError> {
        self.reads.lock().unwrap().push(tenants.len());
        let fault = self.faults.lock().unwrap().pop_front();
        match fault {
            Some(Some(fault)) => Err(fault),
            Some(None) => std::future::pending().await,
            None => self.inner.signing_secrets(tenants).await,
        }
    }
}

/// A worker whose tenant has a secret, which it can read at times.
async fn troubled() -> (Harness, Arc<Troubled>) {
    let mut harness = Harness::open();
    let inner = Arc::clone(&harness.deps.secrets);
    let live = LiveSecret {
        id: WebhookSecretId::new(),
        tenant: TENANT.to_owned(),
        created_at: harness.now(),
        last_digits: secret(1).last_digits(),
    };
    assert_eq!(inner.create_secret(live, secret(1)).await.unwrap(), SecretCreation::Created);
    let troubled = Arc::new(Troubled { inner, reads: Mutex::default(), faults: Mutex::default() });
    harness.deps.secrets = troubled.clone();
    (harness, troubled)
}

fn is_signed(hit: &Hit) -> bool {
    hit.values("webhook-signature").len() == 1
}

#[tokio::test]
async fn a_batch_of_webhooks_reads_secrets_once() {
    let ((harness, secrets), sink) = (troubled().await, Sink::start());
    let (worker, local) = harness.start_local();
    let hooks = |tenant: &str| fixtures::task().tenant(tenant).push(&sink.url("")).times(50);
    harness.insert([hooks(TENANT), hooks("unsigned")].concat()).await;
    let claimed = harness.claim_started(&*local).await;
    assert_eq!(claimed.len(), 100);
    assert!(local.run(claimed, punctual_scheduler::webhook_path::CallTurn::InOrder).is_ok());
    let hits = sink.wait_for("/hook", 100, AMPLE).await;
    harness.stop(worker).await;
    assert_eq!(hits.iter().filter(|hit| is_signed(hit)).count(), 50, "those of the tenant with a secret");
    let reads = secrets.reads.lock().unwrap().clone();
    assert_eq!(reads[0], 2, "both tenants: {reads:?}");
    // Calls that took longer than two seconds had the keys read again.
    assert!(reads.len() <= 4, "{reads:?}");
}

#[tokio::test]
async fn a_webhook_waits_until_secrets_can_be_read() {
    let ((harness, secrets), sink) = (troubled().await, Sink::start());
    secrets
        .faults
        .lock()
        .unwrap()
        .extend([Some(StoreError::Overloaded), Some(StoreError::Unavailable("x".to_owned()))]);
    let worker = harness.start();
    let id = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await[0];
    harness.until(id, State::Completed).await;
    harness.stop(worker).await;
    assert!(sink.hits("/hook").iter().all(is_signed));
    assert_eq!(harness.get(id).await.position.attempts, 1);
}

#[tokio::test]
async fn a_webhook_is_given_back_rather_than_sent_unsigned() {
    let ((mut harness, secrets), sink) = (troubled().await, Sink::start());
    harness.config.grace = Duration::from_secs(2);
    secrets.faults.lock().unwrap().extend([None, None, None]);
    let worker = harness.start();
    let id = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await[0];
    eventually("it is given back", AMPLE, async || {
        let given_back = harness.deps.stats.ended(RunEnd::GivenBack);
        if given_back == 1 { Ok(()) } else { Err(given_back.to_string()) }
    })
    .await;
    harness.stop(worker).await;
    let task = harness.get(id).await;
    assert_eq!((task.state(), task.position.attempts), (State::Pending, 0), "the attempt is not counted");
    assert!(sink.all_hits().is_empty(), "nothing was sent");
}
