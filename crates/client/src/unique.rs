//! Maps that refuse duplicate keys: two readers of such a document would see two different maps.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

struct Unique(BTreeMap<String, String>);

/// Reads an optional map of strings, each key once.
pub(crate) fn strings<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    Ok(Option::<Unique>::deserialize(deserializer)?.map(|map| map.0))
}

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Unique;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose values are strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Unique, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry::<String, String>()? {
                    if map.contains_key(&key) {
                        return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
                    }
                    map.insert(key, value);
                }
                Ok(Unique(map))
            }
        }
        deserializer.deserialize_map(Map)
    }
}
