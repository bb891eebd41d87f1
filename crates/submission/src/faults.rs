//! The list of the faults of one request.
//!
//! The reader of bodies begins it with what has the wrong shape, and the rules of fields add what
//! has a wrong value. Invariants: a fault of the shape hides faults of the value there, which would
//! be about a value that nobody sent; and the list is bounded, the rest is counted.

use punctual_client::problem::FieldError;

use crate::error::{ErrorCode, SubmissionError};
use crate::nearest::did_you_mean;
use crate::sent::Sent;

/// The maximum number of faults of a request that are listed.
pub const LISTED_MAX: usize = 100;
/// The maximum number of faults that are listed for the items of one list.
pub const ITEMS_MAX: usize = 20;

/// The faults of a request (see the module).
#[derive(Clone, Debug, Default)]
pub struct Faults {
    found: Vec<FieldError>,
    /// Where something has the wrong shape.
    misshapen: Vec<String>,
    /// How many more there are.
    more: usize,
    too_large: bool,
}

impl Faults {
    /// Adds a fault.
    pub fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.push(FieldError::new(pointer, message));
    }

    /// Adds a fault of a text that should be one of the known words.
    pub fn add_word<'a>(
        &mut self,
        pointer: impl Into<String>,
        rule: &str,
        text: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        self.add(pointer, format!("{rule}{}", did_you_mean(text, known)));
    }

    /// Adds a fault of something over its limit.
    pub fn add_too_large(&mut self, pointer: impl Into<String>, limit: usize) {
        self.too_large = true;
        self.add(pointer, format!("must have at most {limit} bytes"));
    }

    /// Adds the faults that another check has found.
    pub fn extend(&mut self, faults: impl IntoIterator<Item = FieldError>) {
        faults.into_iter().for_each(|fault| self.push(fault));
    }

    /// Adds the faults of a part of the request, which is at `prefix`.
    pub(crate) fn extend_under(&mut self, prefix: &str, part: Self) {
        for fault in part.found {
            self.push(FieldError { pointer: format!("{prefix}{}", fault.pointer), ..fault });
        }
        self.misshapen.extend(part.misshapen.into_iter().map(|pointer| format!("{prefix}{pointer}")));
        self.more += part.more;
        self.too_large |= part.too_large;
    }

    /// What can be read of a part of the request, which is at `prefix`; its faults are added.
    pub fn part<T>(&mut self, prefix: &str, part: Sent<T>) -> Option<T> {
        let (value, faults) = part.split();
        self.extend_under(prefix, faults);
        value
    }

    /// Adds a fault of the shape.
    pub(crate) fn add_of_shape(&mut self, fault: FieldError) {
        let pointer = fault.pointer.clone();
        if self.list(fault) {
            self.misshapen.push(pointer);
        }
    }

    /// Counts faults that are not listed.
    pub(crate) fn add_more(&mut self, count: usize) {
        self.more += count;
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether what was sent at `pointer` was left out, because it has the wrong shape. What is
    /// missing then was not forgotten.
    pub fn is_left_out(&self, pointer: &str) -> bool {
        self.misshapen.iter().any(|misshapen| misshapen == pointer)
    }

    /// Fails with all faults, if there is any.
    pub fn finish(self) -> Result<(), SubmissionError> {
        if self.found.is_empty() {
            return Ok(());
        }
        let code = if self.too_large { ErrorCode::TooLarge } else { ErrorCode::Invalid };
        Err(SubmissionError { code, detail: String::new(), faults: self.found, more: self.more })
    }

    fn push(&mut self, fault: FieldError) {
        let hides = |misshapen: &String| {
            fault.pointer.strip_prefix(misshapen).is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        if !self.misshapen.iter().any(hides) {
            self.list(fault);
        }
    }

    /// Lists a fault, or counts it if the list is full.
    fn list(&mut self, fault: FieldError) -> bool {
        let has_room = self.found.len() < LISTED_MAX && !self.is_full_list_of(&fault.pointer);
        if has_room {
            self.found.push(fault);
        } else {
            self.more += 1;
        }
        has_room
    }

    /// Whether `pointer` is that of an item, and enough items of its list have a fault.
    fn is_full_list_of(&self, pointer: &str) -> bool {
        let Some((list, index)) = pointer.rsplit_once('/') else { return false };
        let is_index = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_item = |fault: &&FieldError| {
            fault.pointer.rsplit_once('/').is_some_and(|(of, index)| of == list && is_index(index))
        };
        is_index(index) && self.found.iter().filter(is_item).count() >= ITEMS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(pointer: &str) -> FieldError {
        FieldError::new(pointer, "must be a string")
    }

    fn pointers(faults: Faults) -> Vec<String> {
        faults.finish().unwrap_err().faults.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn a_fault_of_the_shape_hides_those_of_the_value() {
        let mut faults = Faults::default();
        faults.add_of_shape(shape("/queue"));
        faults.add_of_shape(shape("/retry_policy"));
        for pointer in ["/queue", "/retry_policy/max_retries", "/queues", "", "/type"] {
            faults.add(pointer, "is odd");
        }
        assert!(faults.is_left_out("/queue") && !faults.is_left_out("/type"));
        assert_eq!(pointers(faults), ["/queue", "/retry_policy", "/queues", "", "/type"]);
    }

    #[test]
    fn the_list_is_bounded_and_the_rest_counted() {
        let mut faults = Faults::default();
        for at in 0..ITEMS_MAX + 7 {
            faults.add(format!("/queues/{at}"), "is odd");
        }
        let error = faults.clone().finish().unwrap_err();
        assert_eq!((error.faults.len(), error.more), (ITEMS_MAX, 7));
        for at in 0..LISTED_MAX {
            faults.add(format!("/metadata/k{at}"), "is odd");
        }
        let error = faults.finish().unwrap_err();
        assert_eq!((error.faults.len(), error.more), (LISTED_MAX, 7 + ITEMS_MAX));
    }

    #[test]
    fn faults_of_a_part_are_below_it() {
        let (mut faults, mut part) = (Faults::default(), Faults::default());
        faults.add_of_shape(shape("/task/type"));
        part.add("/type", "is odd");
        part.add_too_large("/payload", 5);
        faults.extend_under("/task", part);
        let error = faults.finish().unwrap_err();
        assert_eq!((error.code, error.faults.len()), (ErrorCode::TooLarge, 2));
        assert_eq!(error.faults[1].pointer, "/task/payload");
    }
}
