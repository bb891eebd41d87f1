//! The keys that an issuer of tokens publishes: fetched when they are needed, and kept for a while.
//!
//! Invariants: however many callers wait, one fetch is under way, and the next one begins no
//! sooner than [`RETRY`] later, whatever callers send. Keys that were not confirmed for [`KEPT`]
//! verify nothing any more.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_auth::jwt::{Algorithm, KeySet};
use tokio::time::Instant;

/// Keys younger than this are used as they are.
const FRESH: Duration = Duration::from_mins(5);
/// Older ones are used until they are this old, while new ones are fetched.
const KEPT: Duration = Duration::from_hours(1);
/// How long after a fetch the next one may begin.
const RETRY: Duration = Duration::from_secs(10);
/// How long a fetch may take.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Fetches the document with an issuer's keys.
#[async_trait]
pub trait FetchKeys: Send + Sync {
    /// The document, or a sentence about why there is none.
    async fn fetch(&self) -> Result<Vec<u8>, String>;
}

/// The keys (see the module).
pub struct PublishedKeys {
    fetch: Arc<dyn FetchKeys>,
    accepted: Vec<Algorithm>,
    known: Mutex<LastFetch>,
    /// Held while a fetch is under way.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct LastFetch {
    keys: Option<(Arc<KeySet>, Instant)>,
    tried_at: Option<Instant>,
}

impl PublishedKeys {
    /// Keys for these algorithms, which `fetch` fetches.
    pub fn new(fetch: Arc<dyn FetchKeys>, accepted: Vec<Algorithm>) -> Self {
        Self { fetch, accepted, known: Mutex::default(), fetching: tokio::sync::Mutex::new(()) }
    }

    /// The keys; none if they cannot be had.
    pub async fn get(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        match self.kept() {
            Some((keys, age)) if age < FRESH => Some(keys),
            Some((keys, _)) => {
                let these = Arc::clone(self);
                if self.may_try() {
                    tokio::spawn(async move { these.renew().await });
                }
                Some(keys)
            }
            None => self.newer().await,
        }
    }

    /// The keys after a fetch, for a token whose key is not among them: it may be new. If one was
    /// just made, they are as they were.
    pub async fn newer(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let these = Arc::clone(self);
        // In a task of its own: a caller that leaves must not take the fetch with it, or callers
        // that leave at once could keep all others from the keys.
        tokio::spawn(async move { these.renew().await }).await.ok();
        self.kept().map(|(keys, _)| keys)
    }

    fn kept(&self) -> Option<(Arc<KeySet>, Duration)> {
        let known = self.known.lock();
        let (keys, since) = known.keys.as_ref()?;
        let age = since.elapsed();
        (age < KEPT).then(|| (Arc::clone(keys), age))
    }

    fn may_try(&self) -> bool {
        self.known.lock().tried_at.is_none_or(|tried_at| tried_at.elapsed() >= RETRY)
    }

    async fn renew(&self) {
        let _fetching = self.fetching.lock().await;
        // Those who waited find what the first one fetched.
        if !self.may_try() {
            return;
        }
        self.known.lock().tried_at = Some(Instant::now());
        let fetched = match tokio::time::timeout(FETCH_MAX, self.fetch.fetch()).await {
            Ok(Ok(document)) => KeySet::from_jwks(&document, &self.accepted).map_err(|fault| fault.to_string()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err("it did not answer in time".to_owned()),
        };
        match fetched {
            Ok(keys) => self.known.lock().keys = Some((Arc::new(keys), Instant::now())),
            Err(error) => {
                tracing::warn!(
                    error,
                    "cannot fetch the keys of the issuer of tokens; those that are known are kept for an hour"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const SET: &str =
        r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    /// An issuer that counts how often it was asked.
    #[derive(Default)]
    struct Issuer {
        asked: AtomicUsize,
        document: Mutex<Option<&'static str>>,
    }

    #[async_trait]
    impl FetchKeys for Issuer {
        async fn fetch(&self) -> Result<Vec<u8>, String> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            let document = *self.document.lock();
            document.map(|text| text.as_bytes().to_vec()).ok_or_else(|| "it is down".to_owned())
        }
    }

    fn keys(document: Option<&'static str>) -> (Arc<Issuer>, Arc<PublishedKeys>) {
        let issuer = Arc::new(Issuer::default());
        *issuer.document.lock() = document;
        let fetch: Arc<dyn FetchKeys> = Arc::<Issuer>::clone(&issuer);
        (issuer, Arc::new(PublishedKeys::new(fetch, vec![Algorithm::EdDsa])))
    }

    fn asked(issuer: &Issuer) -> usize {
        issuer.asked.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_cause_one_fetch() {
        let (issuer, keys) = keys(Some(SET));
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let keys = Arc::clone(&keys);
            callers.spawn(async move { keys.get().await.is_some() });
        }
        assert!(callers.join_all().await.into_iter().all(|found| found));
        assert_eq!(asked(&issuer), 1);
        for _ in 0..100 {
            assert!(keys.newer().await.is_some());
        }
        assert_eq!(asked(&issuer), 1, "tokens of unknown keys cause no more");
        tokio::time::advance(RETRY).await;
        assert!(keys.newer().await.is_some());
        assert_eq!(asked(&issuer), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_leaves_does_not_take_the_fetch_along() {
        let (issuer, keys) = keys(Some(SET));
        // It is polled once: the fetch has begun and not ended.
        let left = tokio::time::timeout(Duration::ZERO, keys.get()).await;
        assert!(left.is_err());
        assert!(keys.get().await.is_some());
        assert_eq!(asked(&issuer), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_cannot_be_confirmed_end() {
        let (issuer, keys) = keys(Some(SET));
        assert!(keys.get().await.is_some());
        *issuer.document.lock() = None;
        tokio::time::advance(FRESH).await;
        assert!(keys.get().await.is_some(), "while they are fetched again");
        tokio::time::advance(KEPT).await;
        assert!(keys.get().await.is_none());
        *issuer.document.lock() = Some(SET);
        tokio::time::advance(RETRY).await;
        assert!(keys.get().await.is_some(), "the issuer is back");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_key_set_changes_nothing() {
        let (issuer, keys) = keys(Some(SET));
        assert!(keys.get().await.is_some());
        for document in ["", "{}", r#"{"keys": []}"#] {
            *issuer.document.lock() = Some(document);
            tokio::time::advance(RETRY).await;
            assert!(keys.newer().await.is_some(), "{document}");
        }
        assert_eq!(asked(&issuer), 4);
    }
}
