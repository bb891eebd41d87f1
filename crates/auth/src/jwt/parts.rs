//! The three parts of a token, and what its header says.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use punctual_core::json::Json;
use serde_json::{Map, Value};

use super::{Algorithm, TOKEN_BYTES, TokenFault};

/// The longest name of a key.
const KEY_NAME_BYTES: usize = 255;

/// A token, taken apart. Nothing of it is known to be genuine.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub algorithm: Algorithm,
    /// The name of the key that signed it.
    pub key_name: Option<String>,
    pub claims: Map<String, Value>,
    /// What was signed: header and claims as they were sent.
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    pub fn of(token: &'a str) -> Result<Self, TokenFault> {
        if token.len() > TOKEN_BYTES {
            return Err(TokenFault::Malformed("it is too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed("it has one part"))?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed("it has two parts"))?;
        // A third dot is in the claims then, which are no base64.
        let header = object(header)?;
        let claims = object(claims)?;
        let signature = decode(signature)?;
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::named);
        let algorithm = algorithm.ok_or(TokenFault::Malformed("it names no known algorithm"))?;
        // What an extension changes is not known, so a token that needs one cannot be judged.
        if header.contains_key("crit") {
            return Err(TokenFault::Malformed("it needs an extension"));
        }
        let is_token = |kind: &Value| {
            kind.as_str().is_some_and(|kind| ["jwt", "at+jwt"].iter().any(|known| known.eq_ignore_ascii_case(kind)))
        };
        if !header.get("typ").is_none_or(is_token) {
            return Err(TokenFault::Malformed("it is of another type"));
        }
        let key_name = match header.get("kid") {
            None => None,
            Some(Value::String(name)) if name.len() <= KEY_NAME_BYTES => Some(name.clone()),
            Some(_) => return Err(TokenFault::Malformed("the name of its key is none")),
        };
        Ok(Self { algorithm, key_name, claims, signed, signature })
    }
}

fn decode(part: &str) -> Result<Vec<u8>, TokenFault> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFault::Malformed("a part is not base64url"))
}

/// A part that is a JSON object. Two members of one name are refused: others may read the other.
fn object(part: &str) -> Result<Map<String, Value>, TokenFault> {
    let refused = TokenFault::Malformed("a part is not a JSON object");
    let text = String::from_utf8(decode(part)?).map_err(|_| refused)?;
    let json = Json::parse(&text).map_err(|_| refused)?;
    match serde_json::from_str(json.get()) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(refused),
    }
}
