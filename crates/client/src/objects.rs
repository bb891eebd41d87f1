//! What a caller sends is an object, never a list of its values in order.
//!
//! A derived reader of a struct takes a list as well, by position: a request that nobody
//! meant, and whose meaning changes when a field is added. So every type that a request is
//! read into goes through here.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};

/// Takes an object and hands it on.
pub(crate) struct ObjectsOnly<T, R>(pub R, pub PhantomData<T>);

impl<T, R> ObjectsOnly<T, R> {
    pub(crate) fn new(read: R) -> Self {
        Self(read, PhantomData)
    }
}

/// Reads a `T` out of an object.
pub(crate) trait Read<'de, T> {
    fn read<A: MapAccess<'de>>(self, object: MapAccessDeserializer<A>) -> Result<T, A::Error>;
}

impl<'de, T, R: Read<'de, T>> Visitor<'de> for ObjectsOnly<T, R> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        self.0.read(MapAccessDeserializer::new(map))
    }
}

/// For types whose derives are `remote = "Self"`: reads them from objects only, and writes them as ever.
macro_rules! objects_only {
    ($($name:ident),+) => {
        const _: () = {
            use std::marker::PhantomData;

            use serde::de::value::MapAccessDeserializer;
            use serde::de::{Deserialize, Deserializer, MapAccess};
            use serde::ser::{Serialize, Serializer};

            use $crate::objects::{ObjectsOnly, Read};

            struct Derived<T>(PhantomData<T>);
            $(
                impl<'de> Read<'de, $name> for Derived<$name> {
                    fn read<A: MapAccess<'de>>(self, object: MapAccessDeserializer<A>) -> Result<$name, A::Error> {
                        // The derived, inherent function, which comes before the trait's.
                        $name::deserialize(object)
                    }
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

#[cfg(test)]
mod tests {
    use crate::{NewTask, RetryPolicyFields, SettleRequest};

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
    fn an_object_is_read_and_written_as_ever() {
        let text = r#"{"type":"a","payload":{"b":[1.0]},"retry_policy":{"max_retries":1}}"#;
        let task: NewTask = serde_json::from_str(text).unwrap();
        let again: NewTask = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
        assert_eq!(again.payload.unwrap().get(), r#"{"b":[1.0]}"#);
    }
}
