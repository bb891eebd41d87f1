//! Tokens that another system issues: where their keys come from.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use hyper::Uri;
use punctual_api::auth::{BearerTokens, FetchKeys, PublishedKeys, TokenKeys};
use punctual_auth::jwt::{Algorithm, KEY_SET_BYTES, KeySet};
use punctual_outbound::{Fetcher, Lookups, NetworkGuard};

use crate::config::{TokenKeySource, TokenSettings};

/// How long the issuer has to answer.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Who knows the bearers of tokens. Fails if the shared secret cannot be used.
pub fn bearers(settings: &TokenSettings) -> anyhow::Result<BearerTokens> {
    let keys = match &settings.keys {
        TokenKeySource::Secret(file) => TokenKeys::Shared(Arc::new(shared(file, &settings.algorithms)?)),
        TokenKeySource::Published(url) => {
            let guard = NetworkGuard::new(settings.networks.clone(), Lookups::by_system());
            let issuer = Issuer { fetcher: Fetcher::new(guard, FETCH_MAX), url: url.clone() };
            TokenKeys::Published(Arc::new(PublishedKeys::new(Arc::new(issuer), settings.algorithms.clone())))
        }
    };
    Ok(BearerTokens::new(keys, settings.rules.clone(), settings.mapping.clone()))
}

/// The secret in a file, whose last line may end.
fn shared(file: &Path, algorithms: &[Algorithm]) -> anyhow::Result<KeySet> {
    let secret = std::fs::read(file).with_context(|| format!("cannot read jwt.secret_file {}", file.display()))?;
    let secret = secret.strip_suffix(b"\n").unwrap_or(&secret);
    let [algorithm] = algorithms else { anyhow::bail!("jwt.algorithms must be the one of the secret") };
    KeySet::of_secret(*algorithm, secret).with_context(|| format!("cannot use jwt.secret_file {}", file.display()))
}

/// The issuer, which publishes its keys.
struct Issuer {
    fetcher: Fetcher,
    url: Uri,
}

#[async_trait]
impl FetchKeys for Issuer {
    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let document = self.fetcher.get(self.url.clone(), KEY_SET_BYTES).await;
        document.map(|document| document.to_vec()).map_err(|error| error.to_string())
    }
}
