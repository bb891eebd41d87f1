//! The keys that verify tokens: a JSON Web Key Set (RFC 7517), or a shared secret.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;

use super::Algorithm;
use super::algorithm::SignatureVerifier;

/// The largest key set that is read.
pub const KEY_SET_BYTES: usize = 256 * 1024;
/// The maximum number of keys in a set.
const KEYS_MAX: usize = 100;
/// The shortest shared secret, in bytes: as many as its shortest hash.
const SECRET_BYTES: usize = 32;
/// The modulus of an RSA key, in bytes.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The keys that verify tokens, each for one algorithm.
#[derive(Clone, Debug, Default)]
pub struct KeySet(pub(super) Vec<VerificationKey>);

/// Why a key set cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// It is not a key set.
    #[error("it is not a JSON Web Key Set")]
    NotASet,
    /// It has more than this number of keys, or bytes.
    #[error("it is too large")]
    TooLarge,
    /// No key of it is for one of the algorithms.
    #[error("it has no key for the algorithms that are accepted")]
    NoKey,
    /// A shared secret is too short to resist guessing.
    #[error("the secret has fewer than {SECRET_BYTES} bytes")]
    ShortSecret,
}

/// A key.
#[derive(Clone)]
pub(super) struct VerificationKey {
    name: Option<String>,
    algorithm: Algorithm,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Point { algorithm: &'static dyn VerificationAlgorithm, point: Vec<u8> },
    Secret(hmac::Key),
}

impl KeySet {
    /// The keys of a set that are for one of the `accepted` algorithms. Others are left out, and so
    /// are keys that cannot be read: the issuer may have them for other services. A shared secret
    /// is never taken from a set.
    pub fn from_jwks(text: &[u8], accepted: &[Algorithm]) -> Result<Self, KeySetFault> {
        if text.len() > KEY_SET_BYTES {
            return Err(KeySetFault::TooLarge);
        }
        let Jwks { keys } = serde_json::from_slice(text).map_err(|_| KeySetFault::NotASet)?;
        if keys.len() > KEYS_MAX {
            return Err(KeySetFault::TooLarge);
        }
        let keys: Vec<VerificationKey> = keys.iter().flat_map(|key| key.read(accepted)).collect();
        if keys.is_empty() { Err(KeySetFault::NoKey) } else { Ok(Self(keys)) }
    }

    /// A secret that the issuer shares, for one algorithm.
    pub fn of_secret(algorithm: Algorithm, secret: &[u8]) -> Result<Self, KeySetFault> {
        let SignatureVerifier::Secret(hash) = algorithm.verifier() else { return Err(KeySetFault::NoKey) };
        if secret.len() < SECRET_BYTES {
            return Err(KeySetFault::ShortSecret);
        }
        let material = Material::Secret(hmac::Key::new(hash, secret));
        Ok(Self(vec![VerificationKey { name: None, algorithm, material }]))
    }

    /// The keys that may have signed a token. One that names its key has that key only. One that
    /// names none has the only key of its algorithm. The name of a shared secret does not matter:
    /// there is one.
    pub(super) fn candidates(
        &self,
        name: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &VerificationKey> {
        let fitting = move |key: &&VerificationKey| key.algorithm == algorithm;
        let is_only = self.0.iter().filter(fitting).count() == 1;
        self.0.iter().filter(fitting).filter(move |key| match name {
            Some(_) if algorithm.is_shared() => true,
            Some(name) => key.name.as_deref() == Some(name),
            None => is_only,
        })
    }
}

impl VerificationKey {
    /// Whether the signature of `signed` is made with this key.
    pub(super) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        match (&self.material, self.algorithm.verifier()) {
            (Material::Rsa { modulus, exponent }, SignatureVerifier::Rsa(parameters)) => {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, signed, signature).is_ok()
            }
            (Material::Point { algorithm, point }, SignatureVerifier::Point(_)) => {
                UnparsedPublicKey::new(*algorithm, point).verify(signed, signature).is_ok()
            }
            // Compared in constant time.
            (Material::Secret(key), SignatureVerifier::Secret(_)) => hmac::verify(key, signed, signature).is_ok(),
            _ => false,
        }
    }
}

impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its material, which may be a secret.
        let Self { name, algorithm, material: _ } = self;
        f.debug_struct("VerificationKey").field("name", name).field("algorithm", algorithm).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

/// A key as it is published. What is for other purposes is not read.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    /// The key for each accepted algorithm that it may be used with: the one that it names, or all
    /// of its kind.
    fn read(&self, accepted: &[Algorithm]) -> Vec<VerificationKey> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return Vec::new();
        }
        let is_named = |algorithm: &&Algorithm| self.alg.as_deref().is_none_or(|named| named == algorithm.name());
        let keys = accepted.iter().filter(is_named).filter_map(|algorithm| {
            let material = self.material(*algorithm)?;
            Some(VerificationKey { name: self.kid.clone(), algorithm: *algorithm, material })
        });
        // An RSA key that names no algorithm is taken for one only, the first that is accepted.
        let most = if self.alg.is_some() { usize::MAX } else { 1 };
        keys.take(most).collect()
    }

    fn material(&self, algorithm: Algorithm) -> Option<Material> {
        match (algorithm.verifier(), algorithm) {
            (SignatureVerifier::Rsa(_), _) if self.kty == "RSA" => {
                let (modulus, exponent) = (number(self.n.as_deref()?)?, number(self.e.as_deref()?)?);
                MODULUS_BYTES.contains(&modulus.len()).then_some(Material::Rsa { modulus, exponent })
            }
            (SignatureVerifier::Point(verification), Algorithm::EdDsa) if self.is_on("OKP", "Ed25519") => {
                let point = bytes(self.x.as_deref()?)?;
                (point.len() == 32).then_some(Material::Point { algorithm: verification, point })
            }
            (SignatureVerifier::Point(verification), Algorithm::Es256) if self.is_on("EC", "P-256") => {
                Some(Material::Point { algorithm: verification, point: self.point(32)? })
            }
            (SignatureVerifier::Point(verification), Algorithm::Es384) if self.is_on("EC", "P-384") => {
                Some(Material::Point { algorithm: verification, point: self.point(48)? })
            }
            _ => None,
        }
    }

    fn is_on(&self, kind: &str, curve: &str) -> bool {
        self.kty == kind && self.crv.as_deref() == Some(curve)
    }

    /// An uncompressed point, of coordinates of this size.
    fn point(&self, size: usize) -> Option<Vec<u8>> {
        let (x, y) = (bytes(self.x.as_deref()?)?, bytes(self.y.as_deref()?)?);
        (x.len() == size && y.len() == size).then(|| [&[4], x.as_slice(), y.as_slice()].concat())
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// A number without zeros before it, which some issuers write.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = bytes(text)?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[first..].to_vec())
}
