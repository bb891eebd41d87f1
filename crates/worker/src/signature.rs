//! The signature of a webhook, as Standard Webhooks 1.0.0 says: an HMAC-SHA256 over
//! `id.timestamp.body` with each live secret of the tenant.
//!
//! The webhook client signs the very bytes that it sends. Pure.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use punctual_core::webhook_secrets::SigningSecret;
use sha2::Sha256;

/// The live secrets of a tenant, ready to sign: the key schedule of each is made once.
#[derive(Clone, Default)]
pub struct SigningKeys(Vec<Hmac<Sha256>>);

impl SigningKeys {
    /// Those of a tenant without a secret, whose webhooks are not signed.
    pub const NONE: Self = Self(Vec::new());

    /// The keys of these secrets.
    pub fn new(secrets: &[SigningSecret]) -> Self {
        let key = |secret: &SigningSecret| {
            Hmac::new_from_slice(secret.bytes()).expect("invariant: an HMAC takes a key of any length")
        };
        Self(secrets.iter().map(key).collect())
    }

    /// The value of the header `webhook-signature`; none without a secret. `id` has no dot, so
    /// nobody can take a part of it for a part of the timestamp.
    pub(crate) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> Option<String> {
        let signatures = self.0.iter().map(|key| {
            let mut mac = key.clone();
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            "v1,".to_owned() + &BASE64_STANDARD.encode(mac.finalize().into_bytes())
        });
        let signatures: Vec<String> = signatures.collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn the_known_example_has_the_known_signature() {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let keys = SigningKeys::new(&[secret]);
        let signed = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn every_secret_signs_in_its_order() {
        let [first, second] = [1, 2].map(|byte| SigningSecret::from_bytes(vec![byte; 32]));
        let sign = |secrets: &[SigningSecret]| SigningKeys::new(secrets).sign("a", "1", b"").unwrap_or_default();
        let (one, two) = (sign(std::slice::from_ref(&first)), sign(std::slice::from_ref(&second)));
        assert_eq!(sign(&[first, second]), format!("{one} {two}"));
        assert_eq!(SigningKeys::NONE.sign("a", "1", b""), None);
    }

    #[test]
    fn keys_are_hidden() {
        let keys = SigningKeys::new(&[SigningSecret::from_bytes(b"a secret of 24 bytes or so".to_vec())]);
        assert_eq!(format!("{keys:?}"), "SigningKeys(1)");
    }
}
