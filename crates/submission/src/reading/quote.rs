//! Adds to faults what was sent at their places.
//!
//! Done for faults of values only after the check has failed, so that a good request pays nothing.

use punctual_client::problem::FieldError;
use punctual_core::json::Json;
use serde_json::value::RawValue;

use super::excerpt::{excerpt, is_hidden};
use super::members::{self, OneLevel};
use crate::error::pointer_token;

/// The maximum number of members that are searched for places, at each level.
const SEARCHED_MAX: usize = 10_000;

/// A fault, and the tokens of its pointer that lead on from here.
type Sought<'a> = (Vec<&'a str>, usize);

/// Adds what `text` has at the places of the faults that do not say it yet.
pub(crate) fn quote(text: &str, faults: &mut [FieldError]) {
    let Ok(root) = serde_json::from_str::<&RawValue>(text) else { return };
    let pointers: Vec<String> = faults.iter().map(|fault| fault.pointer.clone()).collect();
    let places = pointers.iter().enumerate().filter(|(at, pointer)| {
        // The whole body is shown nowhere: it is what the caller has just sent.
        faults[*at].value.is_none() && pointer.starts_with('/')
    });
    let places: Vec<Sought<'_>> = places.map(|(at, pointer)| (pointer[1..].split('/').rev().collect(), at)).collect();
    fill(root, places, faults);
}

/// What to show of a text that was sent under a name; none if it may not be shown.
pub fn quoted(name: &str, text: &str) -> Option<Json> {
    if is_hidden(name) { None } else { excerpt(&serde_json::to_string(text).ok()?) }
}

/// Fills in the values at `places` below `raw`. Their tokens are in reverse.
fn fill(raw: &RawValue, places: Vec<Sought<'_>>, faults: &mut [FieldError]) {
    let (here, mut below): (Vec<_>, Vec<_>) = places.into_iter().partition(|(tokens, _)| tokens.is_empty());
    for (_, at) in here {
        faults[at].value = excerpt(raw.get());
    }
    below.retain(|(tokens, _)| tokens.last().is_some_and(|token| !is_hidden(token)));
    if below.is_empty() {
        return;
    }
    let mut children: Vec<(&str, Vec<Sought<'_>>)> = Vec::new();
    for (mut tokens, at) in below {
        let Some(token) = tokens.pop() else { continue };
        match children.iter_mut().find(|(name, _)| *name == token) {
            Some((_, places)) => places.push((tokens, at)),
            None => children.push((token, vec![(tokens, at)])),
        }
    }
    if raw.get().starts_with('[') {
        let items = members::items(raw, SEARCHED_MAX).unwrap_or_default();
        for (token, places) in children {
            if let Some(item) = token.parse::<usize>().ok().and_then(|index| items.get(index)) {
                fill(item, places, faults);
            }
        }
        return;
    }
    let position = |name: &str| {
        let token = pointer_token(name);
        children.iter().position(|(child, _)| *child == token)
    };
    let Some(OneLevel { known, .. }) = OneLevel::of(raw, position) else { return };
    for (position, (_, places)) in children.into_iter().enumerate() {
        if let Some(member) = known.get(&position) {
            fill(member, places, faults);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, pointers: &[&str]) -> Vec<Option<String>> {
        let mut faults: Vec<FieldError> = pointers.iter().map(|at| FieldError::new(*at, "is odd")).collect();
        quote(text, &mut faults);
        faults.into_iter().map(|fault| fault.value.map(|value| value.get().to_owned())).collect()
    }

    #[test]
    fn a_fault_says_what_was_sent_there() {
        let text = r#"{"a": {"b/c": [1, "x"]}, "a~": null, "n": 5.0}"#;
        let pointers = ["/a/b~1c/1", "/a/b~1c", "/a~0", "/n", "/gone", "/a/b~1c/2", "", "?n"];
        let expected = [Some(r#""x""#), Some(r#"[1,"x"]"#), Some("null"), Some("5.0"), None, None, None, None];
        assert_eq!(values(text, &pointers), expected.map(|value| value.map(str::to_owned)));
    }

    #[test]
    fn nothing_is_said_below_a_payload_or_a_secret() {
        let text = r#"{"payload": {"k": 1}, "callback_headers": {"x": "y"}, "secret": 1, "k": {"token": 2}}"#;
        let pointers = ["/payload", "/payload/k", "/callback_headers/x", "/secret", "/k/token"];
        assert_eq!(values(text, &pointers), [const { None }; 5]);
    }
}
