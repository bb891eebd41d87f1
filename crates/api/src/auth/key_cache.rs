//! A cache of API keys, so that few requests ask the store.
//!
//! A key is used as it was read for [`FRESH`]. After that it is still used, and read again beside
//! the request; after [`OLDEST`] it is not used any more, and requests wait for the read. So a
//! revoked key is refused within [`OLDEST`] and the time of one request, also while the store is
//! away. Ids that lead to no key are remembered, too, but fewer of them and only while fresh.
//!
//! Invariant: at most one read of a key is under way, however many requests want it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_auth::Principal;
use punctual_core::ids::KeyId;
use punctual_core::store::StoreError;
use punctual_core::tenants::{ApiKeyRecord, Tenants};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;

use crate::problem::Problem;

/// For how long a key is used as it was read.
const FRESH: Duration = Duration::from_secs(2);
/// For how long it is used at all.
const OLDEST: Duration = Duration::from_millis(4_500);
/// The maximum number of keys in memory.
const KEYS_KEPT: usize = 10_000;
/// The maximum number of ids in memory that lead to no key.
const STRANGERS_KEPT: usize = 1_000;
/// The maximum number of keys that are read at once.
const READS_MAX: usize = 16;
/// How long a request waits for a read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A key that this node knows, and its holder.
#[derive(Debug)]
pub(super) struct KnownKey {
    pub record: ApiKeyRecord,
    pub principal: Arc<Principal>,
}

/// The keys in memory (see the module).
pub(super) struct KeyCache {
    tenants: Arc<dyn Tenants>,
    entries: Mutex<KeyEntries>,
    reads: Semaphore,
}

#[derive(Default)]
struct KeyEntries {
    read: HashMap<KeyId, ReadKey>,
    /// The reads that are under way. The request that holds the mutex reads; the others wait.
    under_way: HashMap<KeyId, Arc<AsyncMutex<()>>>,
    strangers: usize,
}

/// What a read has found.
#[derive(Clone)]
struct ReadKey {
    key: Option<Arc<KnownKey>>,
    /// When the read began.
    at: Instant,
}

impl ReadKey {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < FRESH
    }

    fn is_usable(&self) -> bool {
        self.at.elapsed() < if self.key.is_some() { OLDEST } else { FRESH }
    }
}

impl KeyCache {
    pub fn new(tenants: Arc<dyn Tenants>) -> Self {
        Self { tenants, entries: Mutex::default(), reads: Semaphore::new(READS_MAX) }
    }

    /// Whether an answer about this id is in memory.
    pub fn knows(&self, id: KeyId) -> bool {
        self.usable(id).is_some()
    }

    /// The key with this id; none if there is none.
    pub async fn get(self: &Arc<Self>, id: KeyId) -> Result<Option<Arc<KnownKey>>, Problem> {
        if let Some(found) = self.usable(id) {
            if !found.is_fresh() {
                self.refresh(id);
            }
            return Ok(found.key);
        }
        // Boxed, as most requests need no read.
        match Box::pin(tokio::time::timeout(READ_TIMEOUT, self.read_in_turn(id))).await {
            Ok(read) => Ok(read?),
            Err(_) => Err(StoreError::Unavailable("an API key was not read in time".to_owned()).into()),
        }
    }

    fn usable(&self, id: KeyId) -> Option<ReadKey> {
        self.entries.lock().read.get(&id).filter(|read| read.is_usable()).cloned()
    }

    /// Reads a key beside the requests that use it, unless that is under way.
    fn refresh(self: &Arc<Self>, id: KeyId) {
        if self.entries.lock().under_way.contains_key(&id) {
            return;
        }
        let cache = Arc::clone(self);
        tokio::spawn(async move {
            // If it fails, the key is used until it is too old, and requests say why then.
            if let Ok(Err(error)) = tokio::time::timeout(READ_TIMEOUT, cache.read_again(id)).await {
                tracing::debug!(%error, "cannot read an API key again");
            }
        });
    }

    async fn read_again(&self, id: KeyId) -> Result<(), StoreError> {
        let turn = self.turn(id);
        let _reading = turn.mutex.lock().await;
        if self.usable(id).is_none_or(|found| !found.is_fresh()) {
            self.read(id).await?;
        }
        Ok(())
    }

    async fn read_in_turn(&self, id: KeyId) -> Result<Option<Arc<KnownKey>>, StoreError> {
        let turn = self.turn(id);
        let _reading = turn.mutex.lock().await;
        // Another request may have read it meanwhile.
        match self.usable(id) {
            Some(found) => Ok(found.key),
            None => self.read(id).await,
        }
    }

    async fn read(&self, id: KeyId) -> Result<Option<Arc<KnownKey>>, StoreError> {
        let _permit = self.reads.acquire().await;
        // Before the read: what is revoked during it may still be found.
        let at = Instant::now();
        let record = self.tenants.key(id).await?;
        let known = |record: ApiKeyRecord| KnownKey { principal: Arc::new(Principal::of_key(&record)), record };
        let key = record.map(known).map(Arc::new);
        self.entries.lock().keep(id, ReadKey { key: key.clone(), at });
        Ok(key)
    }

    fn turn(&self, id: KeyId) -> ReadTurn<'_> {
        let mutex = Arc::clone(self.entries.lock().under_way.entry(id).or_default());
        ReadTurn { cache: self, id, mutex }
    }
}

/// A place among those that want to read a key.
struct ReadTurn<'c> {
    cache: &'c KeyCache,
    id: KeyId,
    mutex: Arc<AsyncMutex<()>>,
}

impl Drop for ReadTurn<'_> {
    fn drop(&mut self) {
        let mut entries = self.cache.entries.lock();
        // One reference is the map's and one this place's: the last one tidies up.
        if Arc::strong_count(&self.mutex) <= 2 {
            entries.under_way.remove(&self.id);
        }
    }
}

impl KeyEntries {
    fn keep(&mut self, id: KeyId, read: ReadKey) {
        let is_stranger = read.key.is_none();
        self.forget(id);
        let (kept, most) =
            if is_stranger { (self.strangers, STRANGERS_KEPT) } else { (self.read.len() - self.strangers, KEYS_KEPT) };
        if kept >= most {
            self.make_room(is_stranger);
        }
        self.strangers += usize::from(is_stranger);
        self.read.insert(id, read);
    }

    fn forget(&mut self, id: KeyId) {
        if let Some(read) = self.read.remove(&id) {
            self.strangers -= usize::from(read.key.is_none());
        }
    }

    /// Forgets what is too old to be used; if there is nothing, any one of the kind.
    fn make_room(&mut self, of_strangers: bool) {
        self.read.retain(|_, read| read.is_usable());
        self.strangers = self.read.values().filter(|read| read.key.is_none()).count();
        let (kept, most) =
            if of_strangers { (self.strangers, STRANGERS_KEPT) } else { (self.read.len() - self.strangers, KEYS_KEPT) };
        let any = self.read.iter().find(|(_, read)| read.key.is_none() == of_strangers).map(|(id, _)| *id);
        if let Some(id) = any.filter(|_| kept >= most) {
            self.forget(id);
        }
    }
}

#[cfg(test)]
mod tests;
