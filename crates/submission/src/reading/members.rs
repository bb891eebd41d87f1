//! Takes one level of a document apart, and keeps what is below it as text.
//!
//! Invariant: the memory is bounded by what the schema knows and by the constants below, not by the
//! size of the document: a list of small numbers takes far more memory than its text.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::faults::ITEMS_MAX;

/// The members of an object whose names a schema knows.
#[derive(Default)]
pub struct OneLevel<'de> {
    /// Those that it knows, by the position in the schema.
    pub known: HashMap<usize, &'de RawValue>,
    /// The first of the others.
    pub unknown: Vec<(String, &'de RawValue)>,
    /// How many others there are beyond these.
    pub more: usize,
}

impl<'de> OneLevel<'de> {
    /// Takes an object apart; none if the text is not one. `position` finds a name in the schema.
    pub fn of(raw: &'de RawValue, position: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        struct Split<P>(P);
        impl<'de, P: Fn(&str) -> Option<usize>> Visitor<'de> for Split<P> {
            type Value = OneLevel<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<OneLevel<'de>, A::Error> {
                let mut members = OneLevel::default();
                while let Some(name) = object.next_key::<String>()? {
                    match (self.0)(&name) {
                        Some(position) => _ = members.known.insert(position, object.next_value()?),
                        None if members.unknown.len() < ITEMS_MAX => {
                            members.unknown.push((name, object.next_value()?));
                        }
                        None => {
                            object.next_value::<IgnoredAny>()?;
                            members.more += 1;
                        }
                    }
                }
                Ok(members)
            }
        }
        serde_json::Deserializer::from_str(raw.get()).deserialize_map(Split(position)).ok()
    }
}

/// The entries of an object with free names; none if it has more than `most`.
pub fn entries(raw: &RawValue, most: usize) -> Option<Vec<(String, &RawValue)>> {
    struct Entries(usize);
    impl<'de> Visitor<'de> for Entries {
        type Value = Option<Vec<(String, &'de RawValue)>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            let mut entries = Some(Vec::new());
            while let Some(entry) = object.next_entry()? {
                push(&mut entries, entry, self.0);
            }
            Ok(entries)
        }
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(Entries(most)).ok()?
}

/// The items of a list; none if it has more than `most`.
pub fn items(raw: &RawValue, most: usize) -> Option<Vec<&RawValue>> {
    struct Items(usize);
    impl<'de> Visitor<'de> for Items {
        type Value = Option<Vec<&'de RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut items = Some(Vec::new());
            while let Some(item) = list.next_element()? {
                push(&mut items, item, self.0);
            }
            Ok(items)
        }
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Items(most)).ok()?
}

/// Adds to a list, or gives it up if it is full.
fn push<T>(list: &mut Option<Vec<T>>, item: T, most: usize) {
    match list {
        Some(items) if items.len() < most => items.push(item),
        _ => *list = None,
    }
}
