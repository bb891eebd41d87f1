//! The settings of tokens that another system issues: section `[jwt]`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use punctual_auth::jwt::{Algorithm, ClaimMapping, ClaimRules};
use punctual_core::networks::{AllowedNetworks, Network};
use punctual_core::tenants::AccessRole;

use super::reader::SettingReader;

/// The longest leeway: more would lengthen the life of tokens.
const LEEWAY_MAX: Duration = Duration::from_mins(1);

/// Which tokens are accepted.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    pub rules: ClaimRules,
    pub mapping: ClaimMapping,
    pub algorithms: Vec<Algorithm>,
    pub keys: TokenKeySource,
    /// The special networks that the issuer may be in.
    pub networks: AllowedNetworks,
}

/// Where the keys of the issuer are.
#[derive(Clone, Debug)]
pub enum TokenKeySource {
    /// It publishes them.
    Published(Uri),
    /// It shares a secret, which is in this file.
    Secret(PathBuf),
}

impl TokenSettings {
    /// None if no issuer is named: then no token is accepted.
    pub(super) fn read(read: &mut SettingReader<'_>) -> Option<Self> {
        let issuer = read.text("jwt.issuer", name);
        let audience = read.text("jwt.audience", name);
        let leeway = read.seconds("jwt.leeway_seconds", Duration::ZERO..=LEEWAY_MAX);
        let url = read.text("jwt.jwks_url", url);
        let secret = Some(read.text("jwt.secret_file", file)).filter(|path| !path.is_empty());
        let algorithms = read.list("jwt.algorithms", algorithm);
        let mapping = ClaimMapping {
            tenant: read.text("jwt.tenant_claim", name),
            role: read.text("jwt.role_claim", name),
            roles: read.list("jwt.roles", role).into_iter().collect::<BTreeMap<_, _>>(),
            types: Some(read.text("jwt.types_claim", name)).filter(|claim| !claim.is_empty()),
            queues: Some(read.text("jwt.queues_claim", name)).filter(|claim| !claim.is_empty()),
        };
        let allowed = read.list("jwt.allow_networks", network);
        let is_used = !issuer.is_empty() || (url.is_none() && secret.is_none());
        let used_for = "is only used with jwt.issuer, the name of who issues the tokens";
        read.require(if secret.is_some() { "jwt.secret_file" } else { "jwt.jwks_url" }, is_used, used_for);
        if issuer.is_empty() {
            return None;
        }
        let has_one = url.is_some() != secret.is_some();
        read.require("jwt.jwks_url", has_one, "give the URL of the issuer's keys, or secret_file, and not both");
        read.require("jwt.audience", !audience.is_empty(), "must name this service, as tokens for it do");
        let is_shared = algorithms.iter().all(|algorithm| algorithm.is_shared());
        let is_published = algorithms.iter().all(|algorithm| !algorithm.is_shared());
        let fits =
            !algorithms.is_empty() && if secret.is_some() { is_shared && algorithms.len() == 1 } else { is_published };
        let advice = "must be one of HS256, HS384 and HS512 with secret_file, and some of the others with jwks_url";
        read.require("jwt.algorithms", fits, advice);
        // Without TLS anyone on the way could put keys of their own in.
        let is_safe = url.as_ref().is_none_or(|url| url.scheme_str() == Some("https") || !allowed.is_empty());
        read.require("jwt.jwks_url", is_safe, "must begin with https://, unless jwt.allow_networks names its network");
        let keys = match (url, secret) {
            (Some(url), _) => TokenKeySource::Published(url),
            (None, secret) => TokenKeySource::Secret(secret.unwrap_or_default().into()),
        };
        let leeway = i64::try_from(leeway.as_secs()).unwrap_or(0);
        let networks = AllowedNetworks::none().allowing(allowed);
        Some(Self { rules: ClaimRules { issuer, audience, leeway }, mapping, algorithms, keys, networks })
    }
}

/// The name of an issuer, an audience or a claim, or nothing.
fn name(text: &str) -> Result<String, String> {
    let is_name = text.bytes().all(|byte| byte.is_ascii_graphic())
        && text.bytes().next().is_none_or(|first| first.is_ascii_alphanumeric());
    let rule = || "must be visible ASCII that begins with a letter or a digit".to_owned();
    is_name.then(|| text.to_owned()).ok_or_else(rule)
}

fn file(text: &str) -> Result<String, String> {
    if text.contains('\0') { Err("must be the path of a file".to_owned()) } else { Ok(text.to_owned()) }
}

fn url(text: &str) -> Result<Option<Uri>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_url = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
    text.parse()
        .ok()
        .filter(is_url)
        .map(Some)
        .ok_or_else(|| "must be a URL, such as https://issuer.example/keys".to_owned())
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let names = || Algorithm::ALL.map(Algorithm::name).join(", ");
    Algorithm::named(name).ok_or_else(|| format!("must be some of {}", names()))
}

fn role(text: &str) -> Result<(String, AccessRole), String> {
    let read = || {
        let (word, role) = text.rsplit_once('=').filter(|(word, _)| !word.is_empty())?;
        Some((word.to_owned(), AccessRole::from_name(role)?))
    };
    read().ok_or_else(|| "must be WORD=ROLE, such as platform-team=operator".to_owned())
}

fn network(text: &str) -> Result<Network, String> {
    text.parse().map_err(|fault| format!("{fault}"))
}
