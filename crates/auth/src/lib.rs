//! Who a caller is, and what it may do: API keys, signed requests, tokens, roles and scopes.
//!
//! Everything here is pure: it reads no store, no clock and no randomness; the API and
//! `punctual init` pass those in. The API asks it on every request, so a check takes microseconds.
//!
//! Invariant: nothing here prints a secret, and secrets are compared in constant time.

pub mod api_key;
mod checksum;
pub mod jwt;
pub mod permission;
pub mod principal;
pub mod scope;
pub mod signature;

pub use api_key::{IssuedKey, NewKey, PresentedKey, SecretText};
pub use permission::Permission;
pub use principal::Principal;
pub use signature::{ClientSignature, SignedRequest};
