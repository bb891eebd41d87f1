//! Reads the JSON of a request into its type, and lists every fault of its shape in plain words.
//!
//! Called for the bodies of the API, the tasks of a batch and the submissions by SQL. A good text
//! is read in one pass. Only a text that its type refuses is looked at again: against the type's
//! OpenAPI schema ([`shape`]), which knows all names, types, words and bounds, so that they are
//! written down once. That second look ([`repair`]) lists the faults, and writes the text again
//! without them; the values of what is left can be checked then.
//!
//! Invariant: a text without a fault is read, also where only the second look accepts it: whole
//! numbers may be written as `5.0`.

mod excerpt;
mod list;
mod members;
mod quote;
mod repair;
mod shape;
mod syntax;
#[cfg(test)]
mod tests;

use punctual_client::RequestBody;
use punctual_core::json::Json;

use crate::faults::Faults;
use crate::sent::Sent;

pub use list::read_list;
pub(crate) use quote::quote;
pub use quote::quoted;
pub use syntax::NotJson;

use repair::{Nulls, Repair};
use shape::Shape;

/// Reads a document.
pub fn read<T: RequestBody>(text: &str) -> Result<Sent<T>, NotJson> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(Sent::good(value)),
        Err(_) => explain(text, &Shape::of::<T>(), |repaired| serde_json::from_str(repaired).ok()),
    }
}

/// What is wrong with a text that its type refuses, and what is left of it without that.
fn explain<T>(text: &str, shape: &Shape, read: impl Fn(&str) -> Option<T>) -> Result<Sent<T>, NotJson> {
    if text.trim_ascii().is_empty() {
        return Err(NotJson::empty());
    }
    Json::parse(text).map_err(|fault| NotJson::of(&fault))?;
    // A schema does not say of every field whether its type takes a `null`. So they are taken as
    // they are first, and judged by the schema only if the type refuses what is left.
    let look = |nulls| {
        let mut faults = Faults::default();
        let repaired = Repair::new(&mut faults, nulls).document(shape, text);
        (repaired.and_then(|repaired| read(&repaired)), faults)
    };
    let (mut value, mut faults) = look(Nulls::Kept);
    if value.is_none() {
        (value, faults) = look(Nulls::Judged);
    }
    if value.is_none() && faults.is_empty() {
        faults.add("", "is not what this request takes");
    }
    Ok(Sent::new(value, faults))
}
