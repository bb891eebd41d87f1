//! What a token claims, and when that is believed.

use serde_json::{Map, Value};

use super::TokenFault;

/// The longest name of a subject.
const SUBJECT_BYTES: usize = 255;

/// What a token must claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    /// Who must have issued it.
    pub issuer: String,
    /// The service that it must be for.
    pub audience: String,
    /// How far clocks may differ, in seconds.
    pub leeway: i64,
}

/// What a genuine token claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// Whom it is about.
    pub subject: String,
    /// When it ends, in seconds since 1970.
    pub expires_at: i64,
    all: Map<String, Value>,
}

impl Claims {
    /// The claim at a path of names with dots between, such as `realm_access.roles`: its words. A
    /// claim is a word, or a list of words. A name that has dots itself is found first.
    pub fn words(&self, path: &str) -> Vec<&str> {
        match self.find(path) {
            Some(Value::String(word)) => vec![word],
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    fn find(&self, path: &str) -> Option<&Value> {
        if let Some(found) = self.all.get(path) {
            return Some(found);
        }
        let (first, rest) = path.split_once('.')?;
        rest.split('.').try_fold(self.all.get(first)?, |value, name| value.get(name))
    }
}

impl ClaimRules {
    pub(super) fn check(&self, claims: &Map<String, Value>, now: i64) -> Result<Claims, TokenFault> {
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(TokenFault::Claim("iss is not the issuer's name"));
        }
        let is_for_us = match claims.get("aud") {
            Some(Value::String(one)) => *one == self.audience,
            Some(Value::Array(several)) => several.iter().any(|one| one.as_str() == Some(&self.audience)),
            _ => false,
        };
        if !is_for_us {
            return Err(TokenFault::Claim("aud does not name this service"));
        }
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        if subject.is_empty() || subject.len() > SUBJECT_BYTES || subject.chars().any(char::is_control) {
            return Err(TokenFault::Claim("sub is no name"));
        }
        let expires_at = seconds(claims, "exp")?.ok_or(TokenFault::Claim("exp is missing"))?;
        if expires_at.saturating_add(self.leeway) <= now {
            return Err(TokenFault::Claim("exp is over"));
        }
        let begun_by = now.saturating_add(self.leeway);
        if seconds(claims, "nbf")?.is_some_and(|not_before| not_before > begun_by) {
            return Err(TokenFault::Claim("nbf is to come"));
        }
        if seconds(claims, "iat")?.is_some_and(|issued| issued > begun_by) {
            return Err(TokenFault::Claim("iat is to come"));
        }
        Ok(Claims { subject: subject.to_owned(), expires_at, all: claims.clone() })
    }
}

/// An instant in seconds since 1970; none if it is not claimed. Anything but a whole number that is
/// not negative is refused: a text or a fraction must not count as absent.
fn seconds(claims: &Map<String, Value>, name: &'static str) -> Result<Option<i64>, TokenFault> {
    let Some(claim) = claims.get(name) else { return Ok(None) };
    let seconds = claim.as_u64().and_then(|seconds| i64::try_from(seconds).ok());
    seconds.map(Some).ok_or(TokenFault::Claim(match name {
        "exp" => "exp is no instant",
        "nbf" => "nbf is no instant",
        _ => "iat is no instant",
    }))
}
