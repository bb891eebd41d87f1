//! Authentication: who sends a request, by the credential that it carries.
//!
//! [`crate::middleware`] asks the [`Authenticator`] before a request gets its permit, and hands the
//! [`Principal`] on among the request's extensions. A signed request is known only when its body
//! has been read, so that one is checked after its permit. While authentication is off there is no
//! authenticator, and everyone is [`Principal::anyone`].
//!
//! Invariant: a caller that is not known learns nothing but that. Whatever is wrong with its
//! credential, the answer is the same.

mod bearer_tokens;
mod certificates;
mod credential;
mod key_cache;
mod key_uses;
mod published_keys;
mod throttle;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::uri::PathAndQuery;
use punctual_auth::signature::{SignedRequest, WINDOW};
use punctual_auth::{ClientSignature, Permission, PresentedKey, Principal};
use punctual_core::clock::Clock;
use punctual_core::ids::KeyId;
use punctual_core::tenants::Tenants;
use punctual_core::time::signed_millis;
use tokio_util::sync::CancellationToken;

use self::bearer_tokens::BearerFault;
use self::credential::Credential;
use self::key_cache::{KeyCache, KnownKey};
use self::key_uses::KeyUses;
use self::throttle::Throttle;
use crate::access::{self, Access};
use crate::cpu_pool::CpuPool;
use crate::extract::body;
use crate::problem::{Code, Problem};
use crate::server::{ClientCertificate, Peer};

pub use self::bearer_tokens::{BearerTokens, TokenKeys};
pub use self::certificates::CertificateRule;
pub use self::published_keys::{FetchKeys, PublishedKeys};

/// How often the uses of keys are written.
const USES_INTERVAL: Duration = Duration::from_secs(10);

/// What may be set about authentication.
#[derive(Clone, Debug, Default)]
pub struct AuthConfig {
    /// Whether signed requests are accepted.
    pub signed_requests: bool,
    /// Whether the metrics need no credential.
    pub public_metrics: bool,
    /// Which certificates act as which tenant and role.
    pub certificates: Vec<CertificateRule>,
}

/// Knows callers by their credentials (see the module).
pub struct Authenticator {
    keys: Arc<KeyCache>,
    uses: KeyUses,
    throttle: Throttle,
    tenants: Arc<dyn Tenants>,
    clock: Arc<dyn Clock>,
    config: AuthConfig,
    /// Who knows the bearers of tokens; none: tokens are not accepted.
    tokens: Option<BearerTokens>,
    /// Where large bodies are hashed.
    pool: CpuPool,
}

/// A signature whose key is known. Its request is not: the body has to be read first.
pub struct SignedClaim {
    signature: ClientSignature,
    key: Arc<KnownKey>,
    /// What its call needs.
    needs: Permission,
    from: IpAddr,
}

/// The tenant of the key that a signed request claims, among its extensions until it is known.
#[derive(Clone, Debug)]
pub struct ClaimedTenant(pub String);

impl Authenticator {
    /// Knows the keys of `tenants`.
    pub fn new(tenants: Arc<dyn Tenants>, clock: Arc<dyn Clock>, config: AuthConfig) -> Self {
        Self {
            keys: Arc::new(KeyCache::new(Arc::clone(&tenants))),
            uses: KeyUses::default(),
            throttle: Throttle::default(),
            tenants,
            clock,
            config,
            tokens: None,
            pool: CpuPool::default(),
        }
    }

    /// Accepts tokens, too.
    #[must_use]
    pub fn with_tokens(self, tokens: BearerTokens) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Lets a request in if its caller is known and may make the call, and hands on who it is. A
    /// signed request is let in with a claim that [`Authenticator::verify`] has to check.
    pub async fn enter(&self, request: &mut Request) -> Result<Option<SignedClaim>, Problem> {
        let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let needs = match access::of(request.method(), path) {
            Access::Public => return Ok(None),
            Access::Needs(Permission::Measure) if self.config.public_metrics => return Ok(None),
            Access::Needs(permission) => Some(permission),
            Access::Unclassified => None,
        };
        let from = peer_address(request);
        let credential = Credential::of(request.headers());
        match credential {
            Credential::Absent => {
                let certificate = request.extensions().get::<ClientCertificate>();
                let shown =
                    certificate.and_then(|certificate| certificates::principal(&self.config.certificates, certificate));
                let principal = shown.ok_or_else(unauthenticated)?;
                permit(&principal, needs.ok_or_else(unclassified)?)?;
                request.extensions_mut().insert(principal);
                Ok(None)
            }
            Credential::Malformed => Err(self.failed(from, None)),
            Credential::Key(shown) => {
                let key = self.look_up(from, shown.id).await?;
                let key = self.checked_key(from, &shown, key)?;
                let needs = needs.ok_or_else(unclassified)?;
                permit(&key.principal, needs)?;
                request.extensions_mut().insert(Arc::clone(&key.principal));
                Ok(None)
            }
            Credential::Token(token) => {
                let principal = self.bearer(from, &token).await?;
                permit(&principal, needs.ok_or_else(unclassified)?)?;
                request.extensions_mut().insert(principal);
                Ok(None)
            }
            Credential::Signature(signature) => {
                if !self.config.signed_requests || !signature.is_of(self.clock.now()) {
                    return Err(self.failed(from, Some(signature.key)));
                }
                let Some(key) = self.look_up(from, signature.key).await? else {
                    return Err(self.failed(from, Some(signature.key)));
                };
                let needs = needs.ok_or_else(unclassified)?;
                request.extensions_mut().insert(ClaimedTenant(key.principal.tenant.clone()));
                Ok(Some(SignedClaim { signature, key, needs, from }))
            }
        }
    }

    /// Checks a signed request, and hands on who sent it. Its body is read up to `body_bytes`.
    pub async fn verify(&self, claim: SignedClaim, request: Request, body_bytes: usize) -> Result<Request, Problem> {
        let SignedClaim { signature, key, needs, from } = claim;
        let (head, sent) = request.into_parts();
        let bytes = body::read(Request::from_parts(head.clone(), sent), body_bytes).await?;
        let now = self.clock.now();
        let is_valid = signature.is_of(now) && !key.record.has_ended(now);
        let covers = {
            let (signature, digest, bytes) = (signature.clone(), key.record.digest, bytes.clone());
            let (method, uri) = (head.method.clone(), head.uri.clone());
            move || {
                let target = uri.path_and_query().map_or("/", PathAndQuery::as_str);
                signature.covers(SignedRequest { method: method.as_str(), target, body: &bytes }, &digest)
            }
        };
        let is_good = is_valid && self.pool.run(bytes.len(), covers).await?;
        // Only the holder of a key can fill the table of nonces. A nonce is kept as long as its
        // signature could be sent again, whichever clock is ahead.
        let end = now.plus_millis(2 * signed_millis(WINDOW));
        if !is_good || !self.tenants.take_nonce(signature.key, signature.nonce(), end).await? {
            return Err(self.failed(from, Some(signature.key)));
        }
        permit(&key.principal, needs)?;
        self.uses.note(key.record.id, now);
        let mut request = Request::from_parts(head, Body::from(bytes));
        request.extensions_mut().insert(Arc::clone(&key.principal));
        Ok(request)
    }

    /// Writes the uses of keys until `stop`, and once more then.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.write_uses().await,
                () = tokio::time::sleep(USES_INTERVAL) => self.write_uses().await,
            }
        }
    }

    /// The uses are for people: those that cannot be written are noted at the next use.
    async fn write_uses(&self) {
        let uses = self.uses.take();
        if !uses.is_empty()
            && let Err(error) = self.tenants.note_key_uses(uses).await
        {
            tracing::debug!(%error, "cannot write when API keys were last used");
        }
    }

    /// The key with this id. A peer that has failed often gets no more reads of the store for it.
    async fn look_up(&self, from: IpAddr, id: KeyId) -> Result<Option<Arc<KnownKey>>, Problem> {
        if let Some(wait) = self.throttle.blocks(from)
            && !self.keys.knows(id)
        {
            return Err(throttled(wait));
        }
        self.keys.get(id).await
    }

    /// The bearer of a token.
    async fn bearer(&self, from: IpAddr, token: &str) -> Result<Arc<Principal>, Problem> {
        let Some(tokens) = &self.tokens else { return Err(self.failed(from, None)) };
        if let Some(wait) = self.throttle.blocks(from)
            && !tokens.knows(token)
        {
            return Err(throttled(wait));
        }
        tokens.bearer(token, self.clock.now()).await.map_err(|fault| match fault {
            BearerFault::Refused => self.failed(from, None),
            BearerFault::NoKeys => {
                let detail = "tokens cannot be checked now: the keys of their issuer cannot be fetched; try again";
                Problem::new(Code::StoreUnavailable, detail).retry_after(10)
            }
        })
    }

    fn checked_key(
        &self,
        from: IpAddr,
        shown: &PresentedKey,
        key: Option<Arc<KnownKey>>,
    ) -> Result<Arc<KnownKey>, Problem> {
        let now = self.clock.now();
        let is_it = shown.is(key.as_ref().map(|key| &key.record.digest));
        match key.filter(|key| is_it && !key.record.has_ended(now)) {
            Some(key) => {
                self.uses.note(key.record.id, now);
                Ok(key)
            }
            None => Err(self.failed(from, Some(shown.id))),
        }
    }

    /// The refusal of a credential that is not good.
    fn failed(&self, from: IpAddr, key: Option<KeyId>) -> Problem {
        self.throttle.failed(from, key).map_or_else(unauthenticated, throttled)
    }
}

/// Fails unless the caller may do what needs this permission.
fn permit(principal: &Principal, needs: Permission) -> Result<(), Problem> {
    if principal.may(needs) {
        return Ok(());
    }
    let (role, verb) = (principal.role.as_str(), needs.verb());
    let detail = format!("a credential with the role {role} may not {verb}; use one with another role");
    Err(Problem::new(Code::Forbidden, detail))
}

/// The refusal of a caller that is not known. It is the same, whatever is wrong.
pub fn unauthenticated() -> Problem {
    let detail = "the request has no valid credential; send Authorization: Bearer with an API key that has not ended";
    Problem::new(Code::Unauthenticated, detail)
}

fn throttled(wait_seconds: u32) -> Problem {
    let detail =
        "too many requests with credentials that are not valid came from this address; wait, and check the key";
    Problem::new(Code::RateLimited, detail).retry_after(wait_seconds)
}

/// The refusal of a call that nobody has classified.
fn unclassified() -> Problem {
    Problem::new(Code::Forbidden, "no credential may make this call")
}

/// The address of the peer. Tests without a connection have none.
fn peer_address(request: &Request) -> IpAddr {
    let peer = request.extensions().get::<Peer>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), Peer::address)
}
