//! When keys are read, and which are used.

use std::collections::VecDeque;

use async_trait::async_trait;
use punctual_core::ids::WebhookSecretId;
use punctual_core::webhook_secrets::{LiveSecret, SecretCreation, SigningSecret};
use tokio::sync::Semaphore;

use super::*;

/// Longer than anything here waits.
const LONG: Duration = Duration::from_mins(1);

/// Secrets that are read when the test allows it.
struct Scripted {
    secrets: Mutex<HashMap<String, Vec<SigningSecret>>>,
    /// The tenants of each read.
    reads: Mutex<Vec<Vec<String>>>,
    /// The errors of the next reads.
    errors: Mutex<VecDeque<StoreError>>,
    allowed: Semaphore,
}

impl Scripted {
    fn new(reads: usize) -> Arc<Self> {
        Arc::new(Self {
            secrets: Mutex::default(),
            reads: Mutex::default(),
            errors: Mutex::default(),
            allowed: Semaphore::new(reads),
        })
    }

    fn set(&self, tenant: &str, secrets: &[u8]) {
        let secrets = secrets.iter().map(|byte| SigningSecret::from_bytes(vec![*byte; 32])).collect();
        self.secrets.lock().insert(tenant.to_owned(), secrets);
    }

    fn reads(&self) -> usize {
        self.reads.lock().len()
    }
}

#[async_trait]
impl WebhookSecrets for Scripted {
    async fn create_secret(&self, _: LiveSecret, _: SigningSecret) -> Result<SecretCreation, StoreError> {
        unreachable!("the worker makes no secrets")
    }

    async fn list_secrets(&self, _: &str) -> Result<Vec<LiveSecret>, StoreError> {
        unreachable!("the worker lists no secrets")
    }

    async fn delete_secret(&self, _: &str, _: WebhookSecretId) -> Result<bool, StoreError> {
        unreachable!("the worker deletes no secrets")
    }

    async fn signing_secrets(&self, tenants: Vec<String>) -> Result<HashMap<String, Vec<SigningSecret>>, StoreError> {
        self.reads.lock().push(tenants.clone());
        self.allowed.acquire().await.unwrap().forget();
        if let Some(error) = self.errors.lock().pop_front() {
            return Err(error);
        }
        let known = self.secrets.lock();
        Ok(tenants
            .into_iter()
            .filter_map(|tenant| known.get_key_value(&tenant))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect())
    }
}

/// How many signatures a tenant's webhooks have now.
async fn signatures(cache: &SigningKeyCache, tenant: &str) -> Option<usize> {
    let keys = cache.of_tenant(tenant, Instant::now() + LONG).await?;
    Some(keys.sign("a", "1", b"").map_or(0, |signed| signed.split(' ').count()))
}

/// Waits until the reader has nothing to do.
async fn until_read(cache: &SigningKeyCache) {
    while cache.shared.state.lock().reader.is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_calls_are_one_read() {
    let secrets = Scripted::new(100);
    secrets.set("a", &[1]);
    secrets.set("b", &[1, 2]);
    let cache = SigningKeyCache::new(secrets.clone());
    cache.prepare(["a", "b", "nobody", "a"]);
    for _ in 0..1_000 {
        assert_eq!(signatures(&cache, "a").await, Some(1));
        assert_eq!(signatures(&cache, "b").await, Some(2));
        assert_eq!(signatures(&cache, "nobody").await, Some(0));
    }
    assert_eq!(secrets.reads(), 1, "{:?}", secrets.reads.lock());
    assert_eq!(secrets.reads.lock()[0].len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_secret_signs_nothing_after_five_seconds() {
    let secrets = Scripted::new(100);
    secrets.set("a", &[1, 2]);
    let cache = SigningKeyCache::new(secrets.clone());
    assert_eq!(signatures(&cache, "a").await, Some(2));
    secrets.set("a", &[2]);
    // An idle tenant: nobody has asked since, and the old keys are not used once more.
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(signatures(&cache, "a").await, Some(1));
    assert_eq!(secrets.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_tenant_does_not_wait_for_a_read() {
    let secrets = Scripted::new(1);
    secrets.set("a", &[1]);
    let cache = SigningKeyCache::new(secrets.clone());
    assert_eq!(signatures(&cache, "a").await, Some(1));
    secrets.set("a", &[1, 2]);
    tokio::time::advance(FRESH_FOR).await;
    assert_eq!(cache.shared.look(["a"]).map(|_| ()), Some(()), "the read is under way, and hangs");
    tokio::task::yield_now().await;
    assert_eq!(secrets.reads(), 2);
    secrets.allowed.add_permits(1);
    until_read(&cache).await;
    assert_eq!(signatures(&cache, "a").await, Some(2));
    assert_eq!(secrets.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn old_keys_are_not_used_while_the_store_is_away() {
    let secrets = Scripted::new(1);
    secrets.set("a", &[1]);
    let cache = SigningKeyCache::new(secrets.clone());
    assert_eq!(signatures(&cache, "a").await, Some(1));
    tokio::time::advance(USED_FOR).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    assert!(cache.of_tenant("a", deadline).await.is_none(), "the store does not answer");
    assert!(cache.of_tenant("b", deadline).await.is_none(), "nor for another tenant");
    secrets.allowed.add_permits(100);
    assert_eq!(signatures(&cache, "a").await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_tried_again() {
    let secrets = Scripted::new(100);
    secrets.set("a", &[1]);
    secrets.errors.lock().extend([StoreError::Overloaded, StoreError::Corrupt("a row".to_owned())]);
    let cache = SigningKeyCache::new(secrets.clone());
    assert_eq!(signatures(&cache, "a").await, Some(1));
    assert_eq!(secrets.reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_table_of_keys_is_bounded() {
    let secrets = Scripted::new(1_000);
    let cache = SigningKeyCache::new(secrets.clone());
    for round in 0..5 {
        let names: Vec<String> = (0..KEPT_MAX / 2).map(|number| format!("{round}-{number}")).collect();
        cache.prepare(names.iter().map(String::as_str));
        until_read(&cache).await;
    }
    let kept = cache.shared.state.lock().known.len();
    assert!(kept <= KEPT_MAX + READ_MAX, "{kept}");
    assert!(secrets.reads.lock().iter().all(|tenants| tenants.len() <= READ_MAX));
}
