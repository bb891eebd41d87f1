//! A task's priority as it may be submitted: a number, or a word for one.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// 0 (least urgent) to 9, or `low`, `normal`, `high`. The server refuses anything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Priority {
    /// A number.
    Number(i64),
    /// A word.
    Name(String),
}

impl Priority {
    /// The priority of a task that names none.
    pub const DEFAULT: u8 = 5;

    /// The words, least urgent first.
    pub const NAMES: [&str; 3] = ["low", "normal", "high"];

    /// The number from 0 to 9, if it is one.
    pub fn level(&self) -> Option<u8> {
        match self {
            Priority::Number(number) => u8::try_from(*number).ok().filter(|level| *level <= 9),
            Priority::Name(name) => match name.as_str() {
                "low" => Some(2),
                "normal" => Some(5),
                "high" => Some(8),
                _ => None,
            },
        }
    }
}

impl From<u8> for Priority {
    fn from(level: u8) -> Self {
        Priority::Number(level.into())
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrName;
        impl Visitor<'_> for NumberOrName {
            type Value = Priority;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0 to 9, or one of low, normal, high")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Priority, E> {
                Ok(Priority::Number(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Priority, E> {
                Ok(Priority::Number(i64::try_from(number).unwrap_or(i64::MAX)))
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Priority, E> {
                Ok(Priority::Name(name.to_owned()))
            }
        }
        deserializer.deserialize_any(NumberOrName)
    }
}

impl PartialSchema for Priority {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(9));
        AnyOfBuilder::new()
            .item(number)
            .item(Ref::from_schema_name(PriorityName::name()))
            .description(Some("How urgent: 0 to 9, or a word for 2, 5, 8."))
            .into()
    }
}

impl ToSchema for Priority {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Priority")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((PriorityName::name().into_owned(), PriorityName::schema()));
    }
}

/// The words for priorities, for the OpenAPI document.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "documents what a request may say")]
enum PriorityName {
    /// 2.
    Low,
    /// 5.
    Normal,
    /// 8.
    High,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_have_levels() {
        for (text, level) in
            [("0", Some(0)), ("9", Some(9)), ("10", None), ("-1", None), (r#""high""#, Some(8)), (r#""HIGH""#, None)]
        {
            let priority: Priority = serde_json::from_str(text).unwrap();
            assert_eq!(priority.level(), level, "{text}");
        }
        assert!(serde_json::from_str::<Priority>("5.0").is_err());
    }
}
