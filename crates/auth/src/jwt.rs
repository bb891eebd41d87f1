//! Bearer tokens, which another system issues: JSON Web Tokens (RFC 7519), read as RFC 8725 asks.
//!
//! Invariants: a key verifies tokens of one algorithm only, whatever a token's header says. Nothing
//! in a header is followed: no URL, no key, no extension. Every claim that decides something must
//! be there, and have the type that the standard gives it.

mod algorithm;
mod claims;
mod keys;
mod mapping;
mod parts;
#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub use claims::{ClaimRules, Claims};
pub use keys::{KEY_SET_BYTES, KeySet, KeySetFault};
pub use mapping::{ClaimMapping, MappingFault};

use parts::Parts;

/// The longest token that is read.
pub const TOKEN_BYTES: usize = 8 * 1024;

/// Why a token is refused. Callers are told nothing of it; the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// It is not of the form that tokens have.
    #[error("it is not a token: {0}")]
    Malformed(&'static str),
    /// No key of this name is known. It may be a new one.
    #[error("no known key has its name and algorithm")]
    UnknownKey,
    /// The signature is not that of its key.
    #[error("its signature is wrong")]
    Signature,
    /// A claim is missing, of the wrong type, or not what it must be.
    #[error("its claim {0}")]
    Claim(&'static str),
}

/// The claims of a token, if it is genuine and holds at `now`, in seconds since 1970.
pub fn verify(token: &str, keys: &KeySet, rules: &ClaimRules, now: i64) -> Result<Claims, TokenFault> {
    let parts = Parts::of(token)?;
    let mut candidates = keys.candidates(parts.key_name.as_deref(), parts.algorithm).peekable();
    if candidates.peek().is_none() {
        return Err(TokenFault::UnknownKey);
    }
    if !candidates.any(|key| key.verifies(parts.signed.as_bytes(), &parts.signature)) {
        return Err(TokenFault::Signature);
    }
    rules.check(&parts.claims, now)
}
