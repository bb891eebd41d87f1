//! Requests are JSON objects, never lists of values.
//!
//! A derived `Deserialize` of a struct also accepts a list, by position. The meaning of such a
//! request would change with every new field. So every type of a request uses [`objects_only!`].

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use utoipa::ToSchema;

/// The body of a request, or a part of one: its schema says what the server accepts.
pub trait RequestBody: DeserializeOwned + ToSchema {
    /// The members beyond its schema that are accepted and ignored.
    const IGNORED: &'static [&'static str];
}

/// Accepts objects and passes them to `R`.
pub(crate) struct ObjectsOnly<T, R>(pub R, pub PhantomData<T>);

impl<T, R> ObjectsOnly<T, R> {
    pub(crate) fn new(read: R) -> Self {
        Self(read, PhantomData)
    }
}

/// Reads a `T` out of an object.
pub(crate) trait ReadObject<'de, T> {
    fn read<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error>;
}

impl<'de, T, R: ReadObject<'de, T>> Visitor<'de> for ObjectsOnly<T, R> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        self.0.read(map)
    }
}

/// An object without some of its members: read-only fields of an answer that a client sends back.
pub(crate) struct Without<A> {
    object: A,
    names: &'static [&'static str],
}

impl<A> Without<A> {
    pub(crate) fn new(object: A, names: &'static [&'static str]) -> Self {
        Self { object, names }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Without<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.object.next_key::<String>()? {
            if !self.names.contains(&name.as_str()) {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
            self.object.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.object.next_value_seed(seed)
    }
}

/// For types whose derives are `remote = "Self"`: reads them from objects only, and writes them as
/// usual. The members after `without` are ignored.
macro_rules! objects_only {
    ($($name:ident $(without $names:expr)?),+ $(,)?) => {
        const _: () = {
            use std::marker::PhantomData;

            use serde::de::value::MapAccessDeserializer;
            use serde::de::{Deserialize, Deserializer, MapAccess};
            use serde::ser::{Serialize, Serializer};

            use $crate::objects::{ObjectsOnly, ReadObject};

            struct Derived<T>(PhantomData<T>);
            $(
                impl<'de> ReadObject<'de, $name> for Derived<$name> {
                    fn read<A: MapAccess<'de>>(self, object: A) -> Result<$name, A::Error> {
                        $(let object = $crate::objects::Without::new(object, $names);)?
                        let object = MapAccessDeserializer::new(object);
                        // The derived, inherent function, which precedes that of the trait.
                        $name::deserialize(object)
                    }
                }

                impl $crate::objects::RequestBody for $name {
                    const IGNORED: &'static [&'static str] = $crate::objects::names!($($names)?);
                }

                impl<'de> Deserialize<'de> for $name {
                    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        deserializer.deserialize_map(ObjectsOnly::new(Derived::<$name>(PhantomData)))
                    }
                }

                impl Serialize for $name {
                    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                        $name::serialize(self, serializer)
                    }
                }
            )+
        };
    };
}
pub(crate) use objects_only;

/// The given names, or none.
macro_rules! names {
    () => {
        &[]
    };
    ($names:expr) => {
        $names
    };
}
pub(crate) use names;

#[cfg(test)]
mod tests {
    use crate::{NewTask, QueueSettings, RetryPolicyFields, SettleRequest};

    #[test]
    fn a_list_is_not_an_object() {
        for text in [r#"["a"]"#, "[]"] {
            let fault = serde_json::from_str::<NewTask>(text).unwrap_err().to_string();
            assert!(fault.contains("expected an object"), "{fault}");
        }
        assert!(serde_json::from_str::<RetryPolicyFields>(r#"[1,"fixed",1,1,"none"]"#).is_err());
        assert!(serde_json::from_str::<NewTask>(r#"{"type":"a","retry_policy":[1]}"#).is_err());
        assert!(serde_json::from_str::<SettleRequest>("[[]]").is_err());
    }

    #[test]
    fn read_only_fields_of_an_answer_are_ignored() {
        let text = r#"{"version":3,"counts":{"a":[1]},"max_depth":5,"name":"q","pause":null}"#;
        let settings: QueueSettings = serde_json::from_str(text).unwrap();
        assert_eq!((settings.max_depth, settings.name.as_deref()), (Some(5), Some("q")));
        let fault = serde_json::from_str::<QueueSettings>(r#"{"version":3,"depth":5}"#).unwrap_err().to_string();
        assert!(fault.starts_with("unknown field `depth`"), "{fault}");
        let twice = serde_json::from_str::<QueueSettings>(r#"{"max_depth":1,"max_depth":2}"#).unwrap_err().to_string();
        assert!(twice.starts_with("duplicate field"), "{twice}");
    }

    #[test]
    fn an_object_survives_a_round_trip() {
        let text = r#"{"type":"a","payload":{"b":[1.0]},"retry_policy":{"max_retries":1}}"#;
        let task: NewTask = serde_json::from_str(text).unwrap();
        let again: NewTask = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
        assert_eq!(again.payload.unwrap().get(), r#"{"b":[1.0]}"#);
    }
}
