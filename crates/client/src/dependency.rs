//! What a task depends on, on the wire.

use std::fmt;

use punctual_core::task as core;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::words::words;

/// A task that another depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Dependency {
    /// The id of a task.
    Id(String),
    /// In a batch: the index of another of its tasks, from 0.
    Member(u64),
}

words! {
    /// What happens to a task when a dependency does not complete.
    #[derive(Default)]
    OnDependencyFailure is core::OnDependencyFailure {
        /// It is `CANCELLED`.
        #[default]
        Cancel,
        /// It runs nevertheless.
        Run,
        /// It is `FAILED`.
        Fail,
    }
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl Visitor<'_> for One {
            type Value = Dependency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the id of a task, or in a batch the index of another of its tasks")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<Dependency, E> {
                Ok(Dependency::Id(id.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, place: u64) -> Result<Dependency, E> {
                Ok(Dependency::Member(place))
            }
        }
        deserializer.deserialize_any(One)
    }
}

/// Bounds the list while it is read: a list of small numbers takes far more memory than its text.
pub(crate) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Dependency>>, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Option<Vec<Dependency>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of the tasks that this one depends on")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == core::limits::DEPENDENCIES {
                    let most = core::limits::DEPENDENCIES;
                    return Err(de::Error::custom(format_args!("must name at most {most} tasks")));
                }
                list.push(item);
            }
            Ok(Some(list))
        }
    }
    deserializer.deserialize_any(List)
}

#[cfg(test)]
mod tests {
    use crate::NewTask;

    use super::*;

    #[test]
    fn ids_and_indices_are_distinguished() {
        let new: NewTask = serde_json::from_str(r#"{"type":"t","depends_on":["task_1",7]}"#).unwrap();
        assert_eq!(new.depends_on, Some(vec![Dependency::Id("task_1".to_owned()), Dependency::Member(7)]));
        assert_eq!(serde_json::to_string(&new.depends_on).unwrap(), r#"["task_1",7]"#);
    }

    #[test]
    fn null_is_the_same_as_absent() {
        let new: NewTask = serde_json::from_str(r#"{"type":"t","depends_on":null}"#).unwrap();
        assert_eq!(new.depends_on, None);
    }

    #[test]
    fn neither_an_id_nor_an_index_is_refused() {
        for text in ["[-1]", "[1.5]", "[null]", "[[1]]", "{}", "7"] {
            let text = format!(r#"{{"type":"t","depends_on":{text}}}"#);
            assert!(serde_json::from_str::<NewTask>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_is_bounded_while_it_is_read() {
        let text = format!(r#"{{"type":"t","depends_on":[{}0]}}"#, "0,".repeat(core::limits::DEPENDENCIES));
        let fault = serde_json::from_str::<NewTask>(&text).unwrap_err();
        assert!(fault.to_string().contains("at most 10000 tasks"), "{fault}");
    }
}
