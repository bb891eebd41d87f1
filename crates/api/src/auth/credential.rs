//! The credential that a request carries, read strictly: a request with two has none.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use punctual_auth::{ClientSignature, PresentedKey};

/// The header of a signed request.
const SIGNATURE: &str = "x-client-signature";

/// What a request shows of its caller.
pub(super) enum Credential {
    /// Nothing.
    Absent,
    /// An API key.
    Key(PresentedKey),
    /// A token that another system has issued.
    Token(String),
    /// A signature over the request.
    Signature(ClientSignature),
    /// Something that cannot be read, or several.
    Malformed,
}

impl Credential {
    /// The credential in these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut tokens = headers.get_all(AUTHORIZATION).iter();
        let mut signatures = headers.get_all(SIGNATURE).iter();
        let read = match (tokens.next(), tokens.next(), signatures.next(), signatures.next()) {
            (None, _, None, _) => return Self::Absent,
            (Some(token), None, None, _) => token.to_str().ok().and_then(bearer).and_then(Self::of_bearer),
            (None, _, Some(signature), None) => {
                signature.to_str().ok().and_then(ClientSignature::parse).map(Self::Signature)
            }
            _ => None,
        };
        read.unwrap_or(Self::Malformed)
    }

    /// An API key, or a token: only these have dots.
    fn of_bearer(text: &str) -> Option<Self> {
        match PresentedKey::parse(text) {
            Some(key) => Some(Self::Key(key)),
            None => text.contains('.').then(|| Self::Token(text.to_owned())),
        }
    }
}

/// The token after the scheme, whose case does not matter.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}
