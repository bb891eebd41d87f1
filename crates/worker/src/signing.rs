//! The signing keys of tenants, kept for a few seconds.
//!
//! The executor asks for the keys of a task's tenant before each call. They are read from the store
//! for all tenants that are wanted at the time, by one reader: never by a statement for each task.
//! Keys are used until they are [`USED_FOR`] old. Before that, from [`FRESH_FOR`] on, they are read
//! again while the old ones are still used, so that a busy tenant never waits.
//!
//! Invariant: keys that are used were read less than [`USED_FOR`] ago. So a secret that was created
//! or deleted has its effect everywhere within five seconds, and while the store does not answer
//! nobody guesses: a tenant without known keys waits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::store::StoreError;
use punctual_core::webhook_secrets::WebhookSecrets;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::retry::PAUSES;
use crate::signature::SigningKeys;

/// From this age on keys are read again.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// From this age on keys are not used.
const USED_FOR: Duration = Duration::from_millis(4_500);
/// How long a read may take. Its answer would be too old to be used.
const READ_WITHIN: Duration = USED_FOR;
/// The maximum number of tenants in a read.
const READ_MAX: usize = 1_000;
/// The maximum number of tenants whose keys are kept.
const KEPT_MAX: usize = 10_000;

/// The keys of tenants (see the module). Cheap to clone.
#[derive(Clone)]
pub(crate) struct SigningKeyCache {
    shared: Arc<SharedKeys>,
}

struct SharedKeys {
    secrets: Arc<dyn WebhookSecrets>,
    state: Mutex<KeyCacheState>,
    /// Changes after every read that succeeded.
    reads: watch::Sender<u64>,
}

#[derive(Default)]
struct KeyCacheState {
    known: HashMap<String, KnownKeys>,
    /// The tenants of the next read.
    wanted: HashSet<String>,
    /// Reads until nothing is wanted; none if nothing was. One that panicked has ended as well.
    reader: Option<JoinHandle<()>>,
}

struct KnownKeys {
    keys: Arc<SigningKeys>,
    /// When their read began.
    read_at: Instant,
}

impl SigningKeyCache {
    pub(crate) fn new(secrets: Arc<dyn WebhookSecrets>) -> Self {
        let (reads, _) = watch::channel(0);
        Self { shared: Arc::new(SharedKeys { secrets, state: Mutex::default(), reads }) }
    }

    /// The keys of a tenant; none if they could not be read until the deadline.
    pub(crate) async fn of_tenant(&self, tenant: &str, deadline: Instant) -> Option<Arc<SigningKeys>> {
        if let Some(keys) = self.shared.look([tenant]) {
            return Some(keys);
        }
        // Before the next look, so that no read is missed.
        let mut reads = self.shared.reads.subscribe();
        loop {
            if let Some(keys) = self.shared.look([tenant]) {
                return Some(keys);
            }
            timeout_at(deadline, reads.changed()).await.ok()?.ok()?;
        }
    }

    /// Has the keys of these tenants read together, if they are not fresh.
    pub(crate) fn prepare<'t>(&self, tenants: impl IntoIterator<Item = &'t str>) {
        self.shared.look(tenants);
    }
}

impl SharedKeys {
    /// The keys of the last of these tenants, if they can be used. Those that are not fresh will be
    /// read, all together.
    fn look<'t>(self: &Arc<Self>, tenants: impl IntoIterator<Item = &'t str>) -> Option<Arc<SigningKeys>> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut last = None;
        for tenant in tenants {
            let known = state.known.get(tenant).map(|known| (Arc::clone(&known.keys), now - known.read_at));
            if known.as_ref().is_none_or(|(_, age)| *age >= FRESH_FOR) && !state.wanted.contains(tenant) {
                state.wanted.insert(tenant.to_owned());
            }
            last = known.filter(|(_, age)| *age < USED_FOR).map(|(keys, _)| keys);
        }
        if !state.wanted.is_empty() && state.reader.as_ref().is_none_or(JoinHandle::is_finished) {
            state.reader = Some(tokio::spawn(Arc::clone(self).read_all()));
        }
        last
    }

    /// Reads until nothing is wanted. A store that fails is asked again as long as somebody waits.
    async fn read_all(self: Arc<Self>) {
        let mut failures = 0;
        while let Some(tenants) = self.next() {
            let read_at = Instant::now();
            let read = timeout(READ_WITHIN, self.secrets.signing_secrets(tenants.clone())).await;
            let late = || Err(StoreError::Unavailable("it did not answer in time".to_owned()));
            match read.unwrap_or_else(|_| late()) {
                Ok(found) => {
                    failures = 0;
                    let keys = |tenant: &String| SigningKeys::new(found.get(tenant).map_or(&[], Vec::as_slice));
                    let read = tenants.into_iter().map(|tenant| (keys(&tenant), tenant));
                    self.state.lock().know(read, read_at);
                    self.reads.send_modify(|reads| *reads += 1);
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error = %error, "cannot read the secrets of webhooks; their tenants' webhooks wait");
                    }
                    // Waiting calls have subscribed, and look again after the next read.
                    if self.reads.receiver_count() > 0 {
                        self.state.lock().wanted.extend(tenants);
                    }
                    sleep(PAUSES.pause(failures, rand::random())).await;
                }
            }
        }
    }

    /// The tenants of the next read; none if the reader has to end.
    fn next(&self) -> Option<Vec<String>> {
        let mut state = self.state.lock();
        let tenants: Vec<String> = state.wanted.iter().take(READ_MAX).cloned().collect();
        if tenants.is_empty() {
            // The next call that wants something starts another.
            state.reader = None;
            return None;
        }
        for tenant in &tenants {
            state.wanted.remove(tenant);
        }
        Some(tenants)
    }
}

impl KeyCacheState {
    fn know(&mut self, read: impl Iterator<Item = (SigningKeys, String)>, read_at: Instant) {
        if self.known.len() >= KEPT_MAX {
            self.known.retain(|_, known| known.read_at.elapsed() < USED_FOR);
        }
        // Those in use come back at once.
        if self.known.len() >= KEPT_MAX {
            self.known.clear();
        }
        for (keys, tenant) in read {
            // All that have wanted it since the read began are served. If it is too old already,
            // the next look wants it again.
            self.wanted.remove(&tenant);
            self.known.insert(tenant, KnownKeys { keys: Arc::new(keys), read_at });
        }
    }
}

#[cfg(test)]
mod tests;
