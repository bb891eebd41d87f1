//! API keys as text: `pk_<label>_<key id>_<secret>`.
//!
//! The label tells people which key it is, the key id leads to its row, and the secret proves it.
//! The id is the UUID in 32 hex digits. The secret is 256 random bits in 64 hex digits, and a
//! checksum over everything before it in 8 more. Those 72 characters exceed a block of SHA-256 on
//! purpose: then HMAC takes the digest of its key in place of the key, so the digest in the store
//! also checks signed requests.

use std::fmt;

use punctual_core::ids::KeyId;
use punctual_core::tenants::{AccessRole, ApiKeyRecord, KeyScope, SecretDigest};
use punctual_core::time::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::checksum::crc32;

/// What every key begins with; scanners for leaked secrets look for it.
const PREFIX: &str = "pk_";
/// The maximum length of a label.
const LABEL_MAX: usize = 16;
/// The length of a key id.
const ID_DIGITS: usize = 32;
/// The length of the random part of a secret.
const RANDOM_DIGITS: usize = 64;
/// The length of a secret with its checksum.
const SECRET_DIGITS: usize = RANDOM_DIGITS + 8;
/// The label of a key whose name has no letters or digits.
const NO_LABEL: &str = "key";

/// A text that must not be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The text, to hand it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its tenant.
    pub tenant: String,
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: AccessRole,
    /// What it reaches.
    pub scope: KeyScope,
    /// From when on it is refused; none: never.
    pub expires_at: Option<Timestamp>,
}

/// A key that was made a moment ago: its text exists only here.
#[derive(Clone, Debug)]
pub struct IssuedKey {
    /// The key, for its owner.
    pub text: SecretText,
    /// The key, for the store.
    pub record: ApiKeyRecord,
}

impl IssuedKey {
    /// Makes a key of 256 bits from a random source that nobody can predict.
    pub fn new(new: NewKey, random: [u8; 32], now: Timestamp) -> Self {
        let id = KeyId::new();
        let body = format!("{PREFIX}{}_{}_{}", label(&new.name), id.uuid().simple(), hex::encode(random));
        let text = format!("{body}{:08x}", crc32(&body));
        let digest = digest(&text[text.len() - SECRET_DIGITS..]);
        let NewKey { tenant, name, role, scope, expires_at } = new;
        let record =
            ApiKeyRecord { id, tenant, name, role, scope, digest, created_at: now, expires_at, last_used_at: None };
        Self { text: SecretText(text), record }
    }
}

/// The label in the keys of this name: its letters and digits, in lower case.
fn label(name: &str) -> String {
    let plain = name.chars().filter(char::is_ascii_alphanumeric).map(|one| one.to_ascii_lowercase());
    let label: String = plain.take(LABEL_MAX).collect();
    if label.is_empty() { NO_LABEL.to_owned() } else { label }
}

fn digest(secret: &str) -> SecretDigest {
    SecretDigest::new(Sha256::digest(secret).into())
}

/// A key that a caller has shown: well formed, but not checked against the store.
#[derive(Clone, Debug)]
pub struct PresentedKey {
    /// The id that it claims.
    pub id: KeyId,
    digest: SecretDigest,
}

impl PresentedKey {
    /// Reads a key; none if it was not made by [`IssuedKey::new`], or was mistyped.
    pub fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.split_at_checked(text.len().checked_sub(SECRET_DIGITS - RANDOM_DIGITS)?)?;
        let mut parts = body.strip_prefix(PREFIX)?.split('_');
        let (label, id, random) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none()
            && (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            && is_hex(id, ID_DIGITS)
            && is_hex(random, RANDOM_DIGITS)
            && is_hex(sum, SECRET_DIGITS - RANDOM_DIGITS);
        let has_sum = u32::from_str_radix(sum, 16).is_ok_and(|sum| sum == crc32(body));
        if !is_whole || !has_sum {
            return None;
        }
        let id = KeyId::from_uuid(Uuid::try_parse(id).ok()?);
        Some(Self { id, digest: digest(&text[text.len() - SECRET_DIGITS..]) })
    }

    /// Whether it is the key with this digest. A key that does not exist is compared, too, so that
    /// the time shows nothing.
    pub fn is(&self, stored: Option<&SecretDigest>) -> bool {
        let nobody = SecretDigest::new([0; 32]);
        let equal = self.digest.as_bytes().ct_eq(stored.unwrap_or(&nobody).as_bytes());
        bool::from(equal) && stored.is_some()
    }
}

/// Whether a text is this many hex digits in lower case.
fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The key id in its short form, as it stands in a key: 32 hex digits.
pub(crate) fn short_id(text: &str) -> Option<KeyId> {
    is_hex(text, ID_DIGITS).then(|| Uuid::try_parse(text).ok()).flatten().map(KeyId::from_uuid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn issue(name: &str, random: [u8; 32]) -> IssuedKey {
        let new = NewKey {
            tenant: "acme".into(),
            name: name.into(),
            role: AccessRole::Submitter,
            scope: KeyScope::default(),
            expires_at: None,
        };
        IssuedKey::new(new, random, Timestamp::from_millis(7))
    }

    #[test]
    fn a_key_is_known_again() {
        let issued = issue("Web shop (EU) 2", [0xab; 32]);
        let text = issued.text.expose();
        assert!(text.starts_with("pk_webshopeu2_"), "{text}");
        let shown = PresentedKey::parse(text).unwrap();
        assert_eq!(shown.id, issued.record.id);
        assert!(shown.is(Some(&issued.record.digest)));
        assert!(!shown.is(None));
        assert!(!shown.is(Some(&issue("x", [1; 32]).record.digest)));
        assert!(!shown.is(Some(&SecretDigest::new([0; 32]))));
    }

    #[test]
    fn a_label_is_short_and_plain() {
        for (name, made) in [("", "key"), ("größe!", "gre"), ("日本", "key"), ("a_b-c", "abc")] {
            assert_eq!(label(name), made);
        }
        assert_eq!(label(&"A".repeat(99)), "a".repeat(16));
    }

    #[test]
    fn nothing_prints_a_secret() {
        let issued = issue("web", [0xab; 32]);
        let secret = issued.text.expose().rsplit('_').next().unwrap().to_owned();
        let shown = PresentedKey::parse(issued.text.expose()).unwrap();
        let printed = format!("{issued:?} {shown:?} {:?}", issued.text);
        assert!(!printed.contains(&secret) && !printed.contains("abab"), "{printed}");
        assert!(!printed.contains(&hex::encode(issued.record.digest.as_bytes())), "{printed}");
    }

    #[test]
    fn every_mistyped_character_is_noticed() {
        let text = issue("web", [0x5c; 32]).text.expose().to_owned();
        for at in 0..text.len() {
            for other in ['0', '1', 'a', 'z', '_', 'A', ' '] {
                let mut typed: Vec<char> = text.chars().collect();
                if typed[at] != other {
                    typed[at] = other;
                    let typed: String = typed.into_iter().collect();
                    assert!(PresentedKey::parse(&typed).is_none(), "{typed}");
                }
            }
            assert!(PresentedKey::parse(&text[..at]).is_none());
            assert!(PresentedKey::parse(&text[at..]).is_none() || at == 0);
        }
        for odd in ["", "pk_", "pk___", "pk_a_b_c", " ", "größe", "pk_web_00000000000000000000000000000000_"] {
            assert!(PresentedKey::parse(odd).is_none(), "{odd}");
        }
        assert!(PresentedKey::parse(&format!("{text}0")).is_none());
        assert!(PresentedKey::parse(&format!(" {text}")).is_none());
        assert!(PresentedKey::parse(&text.to_uppercase()).is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,160}") {
            prop_assert!(PresentedKey::parse(&text).is_none());
        }

        #[test]
        fn every_issued_key_is_read(name in "\\PC{0,40}", random: [u8; 32]) {
            let issued = issue(&name, random);
            let shown = PresentedKey::parse(issued.text.expose());
            prop_assert!(shown.is_some_and(|shown| shown.is(Some(&issued.record.digest))));
        }
    }
}
