//! JSON that we carry but do not look into: payloads, results, checkpoints.
//!
//! A document is checked once, when it is submitted, and kept as the text its author sent. So a
//! webhook's body and its signature are over the author's own bytes.

mod merge;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A checked JSON document, kept as text.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Checks `text` strictly: well formed, at most 127 levels deep, no duplicate keys, no lone
    /// surrogates, no number beyond the range of a double.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<Strict>(text)?;
        Self::trusted(text.to_owned())
    }

    /// Accepts text that was checked before it was stored; checks only its syntax again.
    pub fn trusted(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    /// The document `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// The text of the document.
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Reads one document of any shape, strictly, and keeps its text.
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        serde_json::from_str::<Strict>(raw.get()).map_err(de::Error::custom)?;
        Ok(Self(raw))
    }
}

/// Walks a document and keeps nothing; fails where [`Json::parse`] says it fails.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(|()| Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<Strict>()?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(MemberName(key)) = map.next_key()? {
            if keys.contains(&key) {
                return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            keys.insert(key);
            map.next_value::<Strict>()?;
        }
        Ok(())
    }
}

#[derive(PartialEq, Eq, Hash)]
struct MemberName<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = MemberName<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Borrowed(key)))
            }
            fn visit_str<E>(self, key: &str) -> Result<MemberName<'de>, E> {
                Ok(MemberName(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_keeps_its_bytes() {
        let text = r#"{"b": 1.0, "a":[1, 2 ,{"é":"\u0000"}]}"#;
        assert_eq!(Json::parse(text).unwrap().get(), text);
    }

    #[test]
    fn ambiguous_json_is_refused() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for bad in [
            r#"{"a":1,"a":2}"#,
            r#"{"x":{"\u0061":1,"a":2}}"#,
            "1e400",
            r#""\ud800""#,
            "NaN",
            "01",
            "{} {}",
            "",
            deep.as_str(),
        ] {
            assert!(Json::parse(bad).is_err(), "{}", &bad[..bad.len().min(40)]);
        }
    }

    #[test]
    fn depth_up_to_127_is_carried() {
        let text = format!("{}{}", "[".repeat(127), "]".repeat(127));
        assert!(Json::parse(&text).is_ok());
    }
}
