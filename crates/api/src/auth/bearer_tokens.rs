//! Callers whose tokens another system has issued.
//!
//! A token that was verified is remembered for [`REMEMBERED`]: a signature costs more than all else
//! that authentication does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_auth::Principal;
use punctual_auth::jwt::{self, ClaimMapping, ClaimRules, Claims, KeySet, TokenFault};
use punctual_core::time::Timestamp;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::published_keys::PublishedKeys;
use crate::extract::Tenant;

/// How long a verified token is believed without another look.
const REMEMBERED: Duration = Duration::from_mins(1);
/// How many tokens are remembered in a generation; there are two.
const GENERATION: usize = 10_000;

/// Where the keys of the issuer come from.
pub enum TokenKeys {
    /// A secret that both sides know.
    Shared(Arc<KeySet>),
    /// The issuer publishes them.
    Published(Arc<PublishedKeys>),
}

/// Knows the bearers of tokens (see the module).
pub struct BearerTokens {
    keys: TokenKeys,
    rules: ClaimRules,
    mapping: ClaimMapping,
    verified: Mutex<Verified>,
}

#[derive(Default)]
struct Verified {
    young: HashMap<[u8; 32], Remembered>,
    old: HashMap<[u8; 32], Remembered>,
}

#[derive(Clone)]
struct Remembered {
    principal: Arc<Principal>,
    until: Instant,
}

/// Why the bearer of a token is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BearerFault {
    /// The token is not good.
    Refused,
    /// Nobody can say: the issuer's keys cannot be had.
    NoKeys,
}

impl BearerTokens {
    /// Tokens that `keys` verify, whose claims must be as `rules` say and mean what `mapping` says.
    pub fn new(keys: TokenKeys, rules: ClaimRules, mapping: ClaimMapping) -> Self {
        Self { keys, rules, mapping, verified: Mutex::default() }
    }

    /// The bearer of a token.
    pub async fn bearer(&self, text: &str, now: Timestamp) -> Result<Arc<Principal>, BearerFault> {
        let digest: [u8; 32] = Sha256::digest(text).into();
        if let Some(known) = self.verified.lock().find(&digest) {
            return Ok(known);
        }
        let claims = self.verify(text, now.as_millis().div_euclid(1_000)).await?;
        let principal = self.mapping.principal(&claims, Tenant::is_name).map_err(|fault| {
            tracing::debug!(subject = claims.subject, %fault, "a genuine token is refused");
            BearerFault::Refused
        })?;
        let left = claims.expires_at.saturating_mul(1_000).saturating_sub(now.as_millis());
        let believed = REMEMBERED.min(Duration::from_millis(u64::try_from(left).unwrap_or(0)));
        let principal = Arc::new(principal);
        let remembered = Remembered { principal: Arc::clone(&principal), until: Instant::now() + believed };
        self.verified.lock().put(digest, remembered);
        Ok(principal)
    }

    /// Whether a token was verified a moment ago.
    pub fn knows(&self, text: &str) -> bool {
        self.verified.lock().find(&Sha256::digest(text).into()).is_some()
    }

    async fn verify(&self, text: &str, now: i64) -> Result<Claims, BearerFault> {
        let by = |keys: &KeySet| jwt::verify(text, keys, &self.rules, now);
        let refused = |fault: TokenFault| {
            tracing::debug!(%fault, "a token is refused");
            BearerFault::Refused
        };
        match &self.keys {
            TokenKeys::Shared(keys) => by(keys).map_err(refused),
            TokenKeys::Published(published) => {
                let keys = published.get().await.ok_or(BearerFault::NoKeys)?;
                match by(&keys) {
                    // The issuer may have begun to sign with a new one.
                    Err(TokenFault::UnknownKey) => {
                        let newer = published.newer().await.ok_or(BearerFault::NoKeys)?;
                        by(&newer).map_err(refused)
                    }
                    judged => judged.map_err(refused),
                }
            }
        }
    }
}

impl Verified {
    fn find(&self, digest: &[u8; 32]) -> Option<Arc<Principal>> {
        let found = self.young.get(digest).or_else(|| self.old.get(digest))?;
        (Instant::now() < found.until).then(|| Arc::clone(&found.principal))
    }

    fn put(&mut self, digest: [u8; 32], remembered: Remembered) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, remembered);
    }
}
