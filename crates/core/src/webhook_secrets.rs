//! The port of webhook secrets, with which a tenant's receivers check that a call is ours.
//!
//! A secret belongs to a tenant. Every webhook of the tenant is signed with each of its live
//! secrets, as Standard Webhooks 1.0.0 says. Two may live at once, so a rotation needs no pause:
//! make the second, switch the receivers to it, delete the first. A secret lives until it is
//! deleted.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::webhook_secrets`.
//!
//! - `a_secret_outlives_the_process`: as it was made, once the call has returned.
//! - `no_more_than_two_secrets_live`: a third is refused, and so it is if many are made at once.
//! - `a_secret_is_stored_once`: making the same one again answers the first, also when there is no
//!   room for another.
//! - `secrets_are_listed_oldest_first`: those of the tenant, without the secrets themselves.
//! - `a_deleted_secret_is_gone`: it signs nothing more, and another may be made. Deleting it again
//!   answers false.
//! - `secrets_of_tenants_are_apart`: neither listed nor deleted for another tenant. Two tenants may
//!   have the same one.
//! - `the_secrets_of_many_tenants_are_one_read`: oldest first. A tenant without one is left out.
//!
//! Every await may be dropped: the call then happens or not, and nothing stays locked.

use std::collections::HashMap;
use std::fmt;
use std::ops::RangeInclusive;

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::ids::WebhookSecretId;
use crate::store::StoreError;
use crate::time::Timestamp;

/// How many secrets of a tenant may live at once.
pub const LIVE_MAX: usize = 2;

/// The key with which webhooks are signed. It is shown in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

/// A text that is not a secret. It does not say what the text was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be `whsec_` and the base64 of 24 to 64 bytes, with its padding")]
pub struct NotASecret;

impl SigningSecret {
    /// What the text of a secret begins with.
    pub const PREFIX: &'static str = "whsec_";
    /// How many bytes a secret has.
    pub const BYTES: RangeInclusive<usize> = 24..=64;
    /// How many characters of its text are shown later, to tell it from others.
    const LAST_DIGITS: usize = 4;

    /// The secret with these bytes, which were stored or are random.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The secret that a text stands for.
    pub fn parse(text: &str) -> Result<Self, NotASecret> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(NotASecret)?;
        let bytes = BASE64_STANDARD.decode(digits).map_err(|_| NotASecret)?;
        if Self::BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(NotASecret) }
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text for receivers, to be shown once.
    pub fn reveal(&self) -> String {
        Self::PREFIX.to_owned() + &BASE64_STANDARD.encode(&self.0)
    }

    /// The end of the text, without the padding.
    pub fn last_digits(&self) -> String {
        let text = BASE64_STANDARD.encode(&self.0);
        let digits = text.trim_end_matches('=');
        digits[digits.len().saturating_sub(Self::LAST_DIGITS)..].to_owned()
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

/// A secret that lives, without the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSecret {
    /// Its id.
    pub id: WebhookSecretId,
    /// Its tenant.
    pub tenant: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The end of its text.
    pub last_digits: String,
}

/// What became of a new secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretCreation {
    /// It lives from now on.
    Created,
    /// The tenant has the same secret already: this one.
    Known(LiveSecret),
    /// The tenant has as many as may live.
    Full,
}

/// The secrets of tenants (see the module's contract).
#[async_trait]
pub trait WebhookSecrets: Send + Sync {
    /// Stores a new secret, described by `live`.
    async fn create_secret(&self, live: LiveSecret, secret: SigningSecret) -> Result<SecretCreation, StoreError>;

    /// Lists the live secrets of a tenant, oldest first.
    async fn list_secrets(&self, tenant: &str) -> Result<Vec<LiveSecret>, StoreError>;

    /// Deletes a secret. Returns whether it lived.
    async fn delete_secret(&self, tenant: &str, id: WebhookSecretId) -> Result<bool, StoreError>;

    /// Reads the live secrets of these tenants, oldest first.
    async fn signing_secrets(&self, tenants: Vec<String>) -> Result<HashMap<String, Vec<SigningSecret>>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_base64_of_24_to_64_bytes() {
        for length in [24, 25, 26, 32, 64] {
            let secret = SigningSecret::from_bytes(vec![7; length]);
            assert_eq!(SigningSecret::parse(&secret.reveal()), Ok(secret));
        }
        let of = |length: usize| SigningSecret::from_bytes(vec![7; length]).reveal();
        let padded = of(32);
        for text in [
            "",
            "whsec_",
            &of(23),
            &of(65),
            &padded.replace("whsec_", ""),
            &padded.replace("whsec_", "whsk_"),
            &padded.replace("whsec_", "WHSEC_"),
            padded.trim_end_matches('='),
            &format!(" {padded}"),
            &format!("{padded}\n"),
            &padded.replacen('B', "-", 1),
            "whsec_not base64 at all, but long enough to be a secret",
        ] {
            assert_eq!(SigningSecret::parse(text), Err(NotASecret), "{text:?}");
        }
    }

    #[test]
    fn a_secret_is_known_by_its_end_and_hidden_otherwise() {
        let text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let secret = SigningSecret::parse(text).unwrap();
        assert_eq!((secret.reveal().as_str(), secret.last_digits().as_str()), (text, "LaSw"));
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
        assert_eq!(SigningSecret::from_bytes(vec![0; 32]).last_digits(), "AAAA", "without the padding");
    }
}
