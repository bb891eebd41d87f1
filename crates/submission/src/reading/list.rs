//! Reads a document whose only member is a list, and leaves the items as text: each is read by
//! itself, so that a bad one does not affect the rest.
//!
//! Invariant: the number of items is bounded while they are read, since a list of tiny ones takes
//! far more memory than its text.

use std::fmt;

use punctual_client::RequestBody;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::shape::Shape;
use super::{NotJson, explain};
use crate::sent::Sent;

/// Reads a document of type `T` with the list `member`, of at most `most` items. If the document
/// has a fault, its items are read nevertheless where they can be.
pub fn read_list<'de, T: RequestBody>(
    text: &'de str,
    member: &'static str,
    most: usize,
) -> Result<Sent<Vec<&'de RawValue>>, NotJson> {
    let read = |takes_others| {
        let mut json = serde_json::Deserializer::from_str(text);
        let items = json.deserialize_map(Document { member, most, takes_others })?;
        json.end().map(|()| items)
    };
    if let Ok(items) = read(false) {
        return Ok(Sent::good(items));
    }
    let (_, faults) = explain::<()>(text, &Shape::of::<T>().with_any_items(), |_| None)?.split();
    Ok(Sent::new(read(true).ok(), faults))
}

/// The document: an object with the list `member`.
struct Document {
    member: &'static str,
    most: usize,
    /// Whether it may have other members, which are ignored.
    takes_others: bool,
}

impl<'de> Visitor<'de> for Document {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut items = None;
        while let Some(name) = object.next_key::<String>()? {
            if name == self.member && items.is_none() {
                items = Some(object.next_value_seed(Items(self.most))?);
            } else if self.takes_others {
                object.next_value::<IgnoredAny>()?;
            } else {
                return Err(A::Error::custom("another member"));
            }
        }
        items.ok_or_else(|| A::Error::missing_field(self.member))
    }
}

/// The items of a list of at most so many.
struct Items(usize);

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            if items.len() == self.0 {
                return Err(A::Error::custom("too many items"));
            }
            items.push(item);
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use punctual_client::NewBatch;

    use super::*;

    const MOST: usize = 3;

    /// The texts of the items, and the places of the faults.
    fn listed(text: &str) -> Result<(Vec<String>, Vec<String>), NotJson> {
        let mut texts = Vec::new();
        let sent = read_list::<NewBatch>(text, "tasks", MOST)?;
        let checked = sent.check(|items, _| {
            texts = items.into_iter().map(|item| item.get().to_owned()).collect();
            Some(())
        });
        let faults = checked.err().into_iter().flat_map(|error| error.faults);
        Ok((texts, faults.map(|fault| fault.pointer).collect()))
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn items_stay_text() {
        let text = r#"{"tasks":[{"type":"b","payload":[1, 2]},17,"x"]}"#;
        assert_eq!(listed(text), Ok((owned(&[r#"{"type":"b","payload":[1, 2]}"#, "17", "\"x\""]), Vec::new())));
    }

    #[test]
    fn items_of_a_document_with_a_fault_are_read() {
        assert_eq!(listed(r#"{"x":1,"tasks":[7],"y":[]}"#), Ok((owned(&["7"]), owned(&["/x", "/y"]))));
    }

    #[test]
    fn a_document_of_another_shape_has_no_items() {
        for (text, pointer) in [("[]", ""), ("[[]]", ""), ("{}", "/tasks"), (r#"{"tasks":{}}"#, "/tasks")] {
            assert_eq!(listed(text), Ok((Vec::new(), owned(&[pointer]))), "{text}");
        }
        for text in [r#"{"tasks":[{]}"#, r#"{"tasks":[]} x"#, r#"{"tasks":[],"tasks":[]}"#, ""] {
            assert!(listed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn too_many_items_are_not_kept() {
        let most = punctual_core::task::limits::BATCH;
        let text = format!(r#"{{"tasks":[{}1]}}"#, "1,".repeat(most));
        assert_eq!(listed(&text), Ok((Vec::new(), owned(&["/tasks"]))));
    }
}
