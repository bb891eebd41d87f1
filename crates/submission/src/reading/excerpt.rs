//! What was sent at the place of a fault: as it is if it is short, otherwise its beginning.
//!
//! Invariant: it shows no payload, no header and nothing named like a secret, since answers end up
//! in logs. A URL may hold a password or a key in its user information and its query, so such a
//! URL is not shown. The length is bounded, and so is the work.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use punctual_core::json::Json;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The maximum length of an excerpt in characters, apart from its quotes.
const SHOWN_MAX: usize = 100;

/// What stands for a value that is not shown.
const HIDDEN: &str = "…";

/// The members that hold what users of our users may have written, or a key.
const CARRIED: &[&str] = &["payload", "result", "progress", "checkpoint", "details", "callback_headers", "headers"];

/// Parts of names that are names of secrets.
const SECRET: &[&str] =
    &["secret", "token", "passw", "credential", "authorization", "cookie", "api_key", "apikey", "private"];

/// Whether the value of a member of this name may not be shown.
pub(super) fn is_hidden(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CARRIED.contains(&name.as_str()) || SECRET.iter().any(|secret| name.contains(secret))
}

/// What to show of the JSON in `text`; none if it may not be shown.
pub fn excerpt(text: &str) -> Option<Json> {
    let text = text.trim_ascii();
    match text.as_bytes().first()? {
        b'"' => {
            let text: String = serde_json::from_str(text).ok()?;
            if is_private(&text) { None } else { string(&shortened(&text)) }
        }
        b'{' | b'[' => {
            let mut shown = String::new();
            let is_whole = ExcerptWriter(&mut shown).deserialize(&mut serde_json::Deserializer::from_str(text)).is_ok();
            if is_whole && is_short(&shown) { Json::trusted(shown).ok() } else { string(&shortened(&shown)) }
        }
        _ if is_short(text) => Json::trusted(text.to_owned()).ok(),
        _ => string(&shortened(text)),
    }
}

fn string(text: &str) -> Option<Json> {
    Json::trusted(serde_json::to_string(text).ok()?).ok()
}

fn is_short(text: &str) -> bool {
    text.chars().nth(SHOWN_MAX).is_none()
}

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_MAX) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// Whether a text may hold a password or a key.
fn is_private(text: &str) -> bool {
    text.contains("://") && text.contains(['@', '?'])
}

/// Writes the JSON that it reads, and fails when there is more than enough of it.
struct ExcerptWriter<'a>(&'a mut String);

impl ExcerptWriter<'_> {
    fn put<E: de::Error>(&mut self, text: impl fmt::Display) -> Result<(), E> {
        write!(self.0, "{text}").map_err(E::custom)?;
        if is_short(self.0) { Ok(()) } else { Err(E::custom("there is enough")) }
    }

    fn put_string<E: de::Error>(&mut self, text: &str) -> Result<(), E> {
        let text = if is_private(text) { Cow::Borrowed(HIDDEN) } else { shortened(text) };
        let quoted = serde_json::to_string(&text).map_err(E::custom)?;
        self.put(quoted)
    }
}

impl<'de> DeserializeSeed<'de> for ExcerptWriter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ExcerptWriter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }
    fn visit_bool<E: de::Error>(mut self, value: bool) -> Result<(), E> {
        self.put(value)
    }
    fn visit_i64<E: de::Error>(mut self, value: i64) -> Result<(), E> {
        self.put(value)
    }
    fn visit_u64<E: de::Error>(mut self, value: u64) -> Result<(), E> {
        self.put(value)
    }
    fn visit_f64<E: de::Error>(mut self, value: f64) -> Result<(), E> {
        self.put(value)
    }
    fn visit_str<E: de::Error>(mut self, value: &str) -> Result<(), E> {
        self.put_string(value)
    }
    fn visit_unit<E: de::Error>(mut self) -> Result<(), E> {
        self.put("null")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.put("[")?;
        let begin = self.0.len();
        while items.next_element_seed(Item { shown: &mut *self.0, begin })?.is_some() {}
        self.put("]")
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        self.put("{")?;
        let begin = self.0.len();
        while let Some(name) = members.next_key::<String>()? {
            if self.0.len() > begin {
                self.put(",")?;
            }
            self.put_string(&name)?;
            self.put(":")?;
            if is_hidden(&name) {
                members.next_value::<IgnoredAny>()?;
                self.put_string(HIDDEN)?;
            } else {
                members.next_value_seed(ExcerptWriter(&mut *self.0))?;
            }
        }
        self.put("}")
    }
}

/// Writes an item of the list that began at `begin`.
struct Item<'a> {
    shown: &'a mut String,
    begin: usize,
}

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.shown.len() > self.begin {
            self.shown.push(',');
        }
        ExcerptWriter(self.shown).deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        excerpt(text).map(|json| json.get().to_owned())
    }

    #[test]
    fn short_values_are_shown_as_they_are() {
        for text in ["5", "5.50", "99999999999999999999", "true", "null", "\"aé\"", "[]", "{}", r#"{"a":[1,"b"]}"#] {
            assert_eq!(shown(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn long_values_are_cut() {
        let long = format!("\"{}\"", "é".repeat(150));
        assert_eq!(shown(&long), Some(format!("\"{}…\"", "é".repeat(SHOWN_MAX))));
        let digits = "9".repeat(300);
        assert_eq!(shown(&digits), Some(format!("\"{}…\"", "9".repeat(SHOWN_MAX))));
        let wide = format!("[{}1]", "1,".repeat(500_000));
        assert_eq!(shown(&wide).unwrap().chars().count(), SHOWN_MAX + 3);
    }

    #[test]
    fn secrets_and_payloads_are_not_shown() {
        assert_eq!(shown("\"https://user:pass@a.example/\""), None);
        assert_eq!(shown("\"https://a.example/?key=1\""), None);
        assert_eq!(shown("\"https://a.example/path\"").as_deref(), Some("\"https://a.example/path\""));
        let object = r#"{"payload":{"a":1},"Api_Token":"x","u":"http://a/?b","k":1}"#;
        assert_eq!(shown(object).as_deref(), Some(r#"{"payload":"…","Api_Token":"…","u":"…","k":1}"#));
        assert!(is_hidden("callback_headers") && is_hidden("clientSecret") && !is_hidden("queue"));
    }
}
