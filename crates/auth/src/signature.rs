//! Signed requests: `X-Client-Signature: keyid=…,ts=…,nonce=…,sig=…`.
//!
//! The signature is an HMAC-SHA256 under the secret of an API key, so the secret itself is never
//! sent. It covers the method, the path with the query, the time, a nonce and the body. The caller
//! of this module makes sure that the nonce is good once.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use punctual_core::ids::KeyId;
use punctual_core::tenants::SecretDigest;
use punctual_core::time::Timestamp;
use sha2::{Digest, Sha256};

use crate::api_key::short_id;

/// How far the time of a signature may be from the time of the server.
pub const WINDOW: Duration = Duration::from_mins(5);

/// The lengths that a nonce may have.
const NONCE_CHARACTERS: std::ops::RangeInclusive<usize> = 8..=128;

/// A signature that a caller has sent: well formed, but not checked.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSignature {
    /// The key that it claims.
    pub key: KeyId,
    /// The time of the caller, in seconds since 1970.
    seconds: i64,
    /// The time as it was sent, which is what was signed.
    time: String,
    nonce: String,
    code: [u8; 32],
}

impl std::fmt::Debug for ClientSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientSignature({}, ts={}, …)", self.key, self.seconds)
    }
}

/// What a signature covers besides its time and its nonce.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'r> {
    /// The method, in capitals.
    pub method: &'r str,
    /// The path as it was sent, with `?` and the query if there is one.
    pub target: &'r str,
    /// The body; empty if there is none.
    pub body: &'r [u8],
}

impl ClientSignature {
    /// Reads the header. The parts come in this order, each once, with nothing between but commas.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split(',');
        let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
        let (key, time, nonce, code) = (part("keyid")?, part("ts")?, part("nonce")?, part("sig")?);
        if parts.next().is_some() {
            return None;
        }
        let is_nonce = NONCE_CHARACTERS.contains(&nonce.len())
            && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=_.-".contains(&byte));
        let is_time = (1..=12).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
        if !is_nonce || !is_time {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(code, &mut bytes).ok()?;
        Some(Self {
            key: key.parse().ok().or_else(|| short_id(key))?,
            seconds: time.parse().ok()?,
            time: time.to_owned(),
            nonce: nonce.to_owned(),
            code: bytes,
        })
    }

    /// The nonce.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Whether it was made within the window around `now`.
    pub fn is_of(&self, now: Timestamp) -> bool {
        let apart = Timestamp::from_millis(self.seconds.saturating_mul(1_000)).millis_since(now).unsigned_abs();
        u128::from(apart) <= WINDOW.as_millis()
    }

    /// Whether the holder of the secret with this digest has signed the request.
    pub fn covers(&self, request: SignedRequest<'_>, secret: &SecretDigest) -> bool {
        let text = canonical(request, &self.time, &self.nonce);
        // HMAC takes the digest of a key that is longer than a block, as every secret is.
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map(|mac| mac.chain_update(text));
        mac.is_ok_and(|mac| mac.verify_slice(&self.code).is_ok())
    }
}

/// The text that is signed.
fn canonical(request: SignedRequest<'_>, time: &str, nonce: &str) -> String {
    let body = hex::encode(Sha256::digest(request.body));
    format!("{}\n{}\n{time}\n{nonce}\n{body}", request.method, request.target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_core::tenants::{AccessRole, KeyScope};

    use super::*;
    use crate::api_key::{IssuedKey, NewKey};

    const NOW: Timestamp = Timestamp::from_millis(1_779_472_800_500);
    const REQUEST: SignedRequest<'static> =
        SignedRequest { method: "POST", target: "/v1/tasks?replace_final=true", body: b"{\"type\":\"t\"}" };

    fn issued() -> IssuedKey {
        let new = NewKey {
            tenant: "acme".into(),
            name: "web".into(),
            role: AccessRole::Submitter,
            scope: KeyScope::default(),
            expires_at: None,
        };
        IssuedKey::new(new, [7; 32], NOW)
    }

    /// As a client does it: with the text after the last underscore.
    fn signed(issued: &IssuedKey, seconds: i64, nonce: &str) -> String {
        let secret = issued.text.expose().rsplit('_').next().unwrap();
        let text = canonical(REQUEST, &seconds.to_string(), nonce);
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(text);
        let code = hex::encode(mac.finalize().into_bytes());
        format!("keyid={},ts={seconds},nonce={nonce},sig={code}", issued.record.id)
    }

    #[test]
    fn a_client_signs_with_the_secret_alone() {
        let issued = issued();
        let header = signed(&issued, 1_779_472_800, "nonce-17");
        let signature = ClientSignature::parse(&header).unwrap();
        assert!(signature.covers(REQUEST, &issued.record.digest));
        assert_eq!((signature.key, signature.nonce()), (issued.record.id, "nonce-17"));
        let short = header.replace(&issued.record.id.to_string(), &issued.record.id.uuid().simple().to_string());
        assert_eq!(ClientSignature::parse(&short), Some(signature));
    }

    #[test]
    fn whatever_is_swapped_breaks_the_signature() {
        let issued = issued();
        let header = signed(&issued, 1_779_472_800, "nonce-17");
        let covers =
            |header: &str, request| ClientSignature::parse(header).unwrap().covers(request, &issued.record.digest);
        for other in [
            SignedRequest { method: "PUT", ..REQUEST },
            SignedRequest { target: "/v1/tasks", ..REQUEST },
            SignedRequest { target: "/v1/tasks/batch?replace_final=true", ..REQUEST },
            SignedRequest { body: b"{\"type\":\"u\"}", ..REQUEST },
            SignedRequest { body: b"", ..REQUEST },
        ] {
            assert!(!covers(&header, other), "{other:?}");
        }
        assert!(!covers(&header.replace("1779472800", "1779472801"), REQUEST));
        assert!(!covers(&header.replace("nonce-17", "nonce-18"), REQUEST));
        assert!(!ClientSignature::parse(&header).unwrap().covers(REQUEST, &SecretDigest::new([0; 32])));
    }

    #[test]
    fn the_window_is_five_minutes_either_way() {
        let signature = |seconds| ClientSignature::parse(&signed(&issued(), seconds, "nonce-17")).unwrap();
        let now = 1_779_472_800;
        for (seconds, is_good) in
            [(now - 299, true), (now + 300, true), (now - 300, false), (now + 301, false), (0, false)]
        {
            assert_eq!(signature(seconds).is_of(NOW), is_good, "{seconds}");
        }
    }

    #[test]
    fn the_header_has_one_form() {
        let good = signed(&issued(), 1_779_472_800, "nonce-17");
        for bad in [
            String::new(),
            good.replace(",ts", ", ts"),
            good.replace("ts=", "TS="),
            good.replace("ts=", "ts=-"),
            good.replace("ts=1", "ts=+1"),
            good.replace("ts=", "ts=9999"),
            good.replace("nonce=nonce-17", "nonce=short"),
            good.replace("nonce=nonce-17", "nonce=a b c d e f"),
            good.replace("nonce=nonce-17", &format!("nonce={}", "n".repeat(129))),
            good.replace("sig=", "sig=0"),
            good.replace("sig=", "sig=zz"),
            good.replace("keyid=key_", "keyid="),
            format!("{good},"),
            format!("{good},x=1"),
            format!(" {good}"),
            good.split(',').rev().collect::<Vec<_>>().join(","),
            good.rsplit_once(',').unwrap().0.to_owned(),
        ] {
            assert_eq!(ClientSignature::parse(&bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_without_a_panic(header in "\\PC{0,200}") {
            prop_assert!(ClientSignature::parse(&header).is_none());
        }
    }
}
