//! JSON merge patches (RFC 7396) over documents that are kept as text.
//!
//! Called by `PATCH` of a schedule, for its task. Invariant: what the patch does not name keeps its
//! text, so numbers keep their digits and members their order. The recursion is as deep as the
//! patch, which is bounded by [`Json::parse`].

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Json;

impl Json {
    /// This document after a merge patch: members of objects are merged, `null` removes a member,
    /// and anything else takes the place of what was there.
    #[must_use]
    pub fn merged(&self, patch: &Self) -> Self {
        match merged(Some(self.get()), patch.get()) {
            Some(text) => Self::trusted(text).expect("invariant: it is put together from documents"),
            None => self.clone(),
        }
    }
}

/// The text of `target` after `patch`; none if nothing changes.
fn merged(target: Option<&str>, patch: &str) -> Option<String> {
    let Some(Members(patch)) = Members::of(patch) else {
        return (target != Some(patch)).then(|| patch.to_owned());
    };
    let there = target.and_then(Members::of);
    let mut changed = there.is_none();
    let mut members: Vec<(String, Option<String>)> =
        there.unwrap_or_default().0.into_iter().map(|(name, value)| (name, Some(value.get().to_owned()))).collect();
    let places: HashMap<String, usize> = (0..).zip(&members).map(|(place, (name, _))| (name.clone(), place)).collect();
    for (name, value) in patch {
        let place = places.get(&name).copied();
        let was = place.and_then(|place| members[place].1.as_deref());
        let value = if value.get() == "null" {
            if was.is_none() {
                continue;
            }
            None
        } else {
            let Some(text) = merged(was, value.get()) else { continue };
            Some(text)
        };
        changed = true;
        match place {
            Some(place) => members[place].1 = value,
            None => members.push((name, value)),
        }
    }
    changed.then(|| written(members))
}

/// The object of these members, without those that were removed.
fn written(members: Vec<(String, Option<String>)>) -> String {
    let mut text = String::from("{");
    for (name, value) in members {
        let Some(value) = value else { continue };
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&serde_json::Value::String(name).to_string());
        text.push(':');
        text.push_str(&value);
    }
    text.push('}');
    text
}

/// The members of an object, in its order.
#[derive(Default)]
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Members<'t> {
    /// Those of a document; none if it is not an object.
    fn of(text: &'t str) -> Option<Self> {
        text.starts_with('{').then(|| serde_json::from_str(text).expect("invariant: the document was checked"))
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn merged(target: &str, patch: &str) -> String {
        Json::parse(target).unwrap().merged(&Json::parse(patch).unwrap()).get().to_owned()
    }

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_standard_hold() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(target, patch), result, "{target} with {patch}");
        }
    }

    #[test]
    fn what_a_patch_does_not_change_keeps_its_text() {
        let target = r#"{"n": 1.500, "big": 12345678901234567890123, "o": {"k" : [1, 2]}}"#;
        for same in ["{}", r#"{"n":1.500,"x":null}"#, r#"{"o":{"k":[1, 2]}}"#] {
            assert_eq!(merged(target, same), target, "{same}");
        }
        let other = r#"{"n":1.500,"big":12345678901234567890123,"o":{"k":[1, 2],"é\"":0}}"#;
        assert_eq!(merged(target, r#"{"o":{"\u00e9\"":0}}"#), other);
    }

    /// The algorithm as the standard writes it.
    fn by_the_standard(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut members = if let Value::Object(members) = target { members } else { Map::new() };
        for (name, value) in patch {
            let was = members.remove(name).unwrap_or(Value::Null);
            if !value.is_null() {
                members.insert(name.clone(), by_the_standard(was, value));
            }
        }
        Value::Object(members)
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..9).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4)
                    .prop_map(|all| Value::Object(all.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_merge_is_that_of_the_standard(target in documents(), patch in documents()) {
            let found = merged(&target.to_string(), &patch.to_string());
            prop_assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), by_the_standard(target, &patch));
        }
    }
}
