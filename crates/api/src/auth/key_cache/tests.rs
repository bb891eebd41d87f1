use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use punctual_core::tenants::{AccessRole, KeyScope, KeyStored, SecretDigest, TenantRecord, TenantRemoved};
use punctual_core::time::Timestamp;
use tokio::time::{advance, sleep};

use super::*;

/// How long a read takes.
const READ: Duration = Duration::from_millis(100);

/// One key, which may be revoked, in a store that may be away. It counts the reads.
#[derive(Default)]
struct OneKey {
    is_revoked: AtomicBool,
    is_away: AtomicBool,
    reads: AtomicUsize,
}

impl OneKey {
    fn id() -> KeyId {
        KeyId::from_uuid(uuid::Uuid::from_u128(7))
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Tenants for OneKey {
    async fn key(&self, id: KeyId) -> Result<Option<ApiKeyRecord>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let is_there = id == Self::id() && !self.is_revoked.load(Ordering::SeqCst);
        sleep(READ).await;
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(is_there.then(|| ApiKeyRecord {
            id,
            tenant: "acme".to_owned(),
            name: "web".to_owned(),
            role: AccessRole::Viewer,
            scope: KeyScope::default(),
            digest: SecretDigest::new([1; 32]),
            created_at: Timestamp::from_millis(0),
            expires_at: None,
            last_used_at: None,
        }))
    }

    async fn create_tenant(&self, _: TenantRecord) -> Result<bool, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn tenant(&self, _: &str) -> Result<Option<TenantRecord>, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn tenants(&self, _: Option<String>, _: usize) -> Result<Vec<TenantRecord>, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn write_tenant(&self, _: TenantRecord) -> Result<bool, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn remove_tenant(&self, _: &str) -> Result<TenantRemoved, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn create_key(&self, _: ApiKeyRecord) -> Result<KeyStored, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn create_first_admin_key(&self, _: ApiKeyRecord, _: Timestamp) -> Result<bool, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn keys(&self, _: &str, _: Option<KeyId>, _: usize) -> Result<Vec<ApiKeyRecord>, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn revoke_key(&self, _: &str, _: KeyId) -> Result<bool, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn rotate_key(&self, _: KeyId, _: ApiKeyRecord, _: Timestamp, _: Timestamp) -> Result<bool, StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn note_key_uses(&self, _: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        unreachable!("the cache only reads keys")
    }

    async fn take_nonce(&self, _: KeyId, _: &str, _: Timestamp) -> Result<bool, StoreError> {
        unreachable!("the cache only reads keys")
    }
}

fn cache() -> (Arc<OneKey>, Arc<KeyCache>) {
    let store = Arc::new(OneKey::default());
    (Arc::clone(&store), Arc::new(KeyCache::new(store)))
}

async fn is_known(cache: &Arc<KeyCache>) -> bool {
    cache.get(OneKey::id()).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn many_requests_at_once_make_one_read() {
    let (store, cache) = cache();
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let cache = Arc::clone(&cache);
        requests.spawn(async move { is_known(&cache).await });
    }
    assert!(requests.join_all().await.into_iter().all(|known| known));
    assert_eq!(store.reads(), 1);
    assert!(cache.entries.lock().under_way.is_empty(), "the places are tidied up");
}

/// The request that reads is dropped; another one reads in its place.
#[tokio::test(start_paused = true)]
async fn a_dropped_read_is_made_by_the_next() {
    let (store, cache) = cache();
    let first = tokio::time::timeout(READ / 2, cache.get(OneKey::id()));
    assert!(first.await.is_err());
    assert!(cache.entries.lock().under_way.is_empty());
    assert!(is_known(&cache).await);
    assert_eq!(store.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_in_use_is_read_beside_the_requests() {
    let (store, cache) = cache();
    assert!(is_known(&cache).await);
    for _ in 0..50 {
        advance(Duration::from_millis(200)).await;
        let began = Instant::now();
        assert!(is_known(&cache).await);
        assert_eq!(began.elapsed(), Duration::ZERO, "no request waits");
        sleep(READ).await;
    }
    assert!((5..12).contains(&store.reads()), "{}", store.reads());
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_is_refused_in_time() {
    for pause in [10, 500, 1_999, 2_500, 4_400] {
        let (store, cache) = cache();
        assert!(is_known(&cache).await);
        store.is_revoked.store(true, Ordering::SeqCst);
        let revoked = Instant::now();
        loop {
            sleep(Duration::from_millis(pause)).await;
            if !is_known(&cache).await {
                break;
            }
            assert!(revoked.elapsed() < Duration::from_secs(5), "{pause}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_a_key_is_not_used_for_long() {
    let (store, cache) = cache();
    assert!(is_known(&cache).await);
    store.is_away.store(true, Ordering::SeqCst);
    advance(Duration::from_secs(4)).await;
    assert!(is_known(&cache).await);
    advance(Duration::from_secs(1)).await;
    assert!(cache.get(OneKey::id()).await.is_err(), "fail closed");
    store.is_away.store(false, Ordering::SeqCst);
    assert!(is_known(&cache).await);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_leads_nowhere_is_remembered_briefly() {
    let (store, cache) = cache();
    let stranger = KeyId::new();
    for _ in 0..10 {
        assert!(cache.get(stranger).await.unwrap().is_none());
    }
    assert_eq!(store.reads(), 1);
    advance(FRESH).await;
    assert!(cache.get(stranger).await.unwrap().is_none());
    assert_eq!(store.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_memory_is_bounded() {
    let (_, cache) = cache();
    assert!(is_known(&cache).await);
    for _ in 0..STRANGERS_KEPT + 50 {
        cache.entries.lock().keep(KeyId::new(), ReadKey { key: None, at: Instant::now() });
    }
    let known = cache.entries.lock().read[&OneKey::id()].key.clone();
    let entries = &mut *cache.entries.lock();
    assert_eq!((entries.strangers, entries.read.len()), (STRANGERS_KEPT, STRANGERS_KEPT + 1));
    for _ in 0..KEYS_KEPT + 50 {
        entries.keep(KeyId::new(), ReadKey { key: known.clone(), at: Instant::now() });
    }
    assert_eq!((entries.strangers, entries.read.len()), (STRANGERS_KEPT, STRANGERS_KEPT + KEYS_KEPT));
}
