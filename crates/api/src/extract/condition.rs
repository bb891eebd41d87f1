//! `If-Match` and `If-None-Match`: the condition on which a request changes something.
//!
//! Every handler that changes one thing takes an [`If`] and refuses with [`If::refusal`]. Versions
//! are strong entity tags: numbers in quotes. A thing that does not exist matches no tag, not even
//! `*`.

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use punctual_core::condition::{Condition, Versions};

use crate::encoding::without_coding;
use crate::problem::{Code, Problem};

/// The condition in the headers of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct If(pub Condition);

impl If {
    /// Fails unless the condition holds for a thing, called `what`, at version `there`; none if it
    /// does not exist.
    pub fn check(&self, what: &str, there: Option<u64>) -> Result<(), Problem> {
        if self.0.holds(there) { Ok(()) } else { Err(self.refusal(what, there)) }
    }

    /// The problem for a thing whose condition does not hold.
    pub fn refusal(&self, what: &str, there: Option<u64>) -> Problem {
        let detail = match there {
            None => format!("there is no such {what}; nothing was done"),
            Some(version) if Condition { not_at: None, ..self.0.clone() }.holds(there) => {
                format!("If-None-Match: the {what} is there, at version {version}; nothing was done")
            }
            Some(version) => format!("the {what} is at version {version}; nothing was done"),
        };
        Problem::new(Code::VersionMismatch, detail)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for If {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = |header: HeaderName| {
            let values = parts.headers.get_all(&header).iter().map(HeaderValue::as_bytes);
            versions(values, header == IF_NONE_MATCH).map_err(|MalformedTags| {
                let name = if header == IF_MATCH { "If-Match" } else { "If-None-Match" };
                Problem::new(Code::InvalidHeader, format!("{name} must be * or a list of entity tags such as \"3\""))
            })
        };
        Ok(Self(Condition { at: read(IF_MATCH)?, not_at: read(IF_NONE_MATCH)? }))
    }
}

/// A header that is no list of entity tags.
#[derive(Debug, PartialEq, Eq)]
struct MalformedTags;

/// The versions in the values of a header, with those of weak tags (`W/"3"`) if they count; none if
/// it is absent.
fn versions<'a>(values: impl Iterator<Item = &'a [u8]>, weak_counts: bool) -> Result<Option<Versions>, MalformedTags> {
    let (mut versions, mut has_tags): (Option<Vec<u64>>, bool) = (None, false);
    for value in values {
        let mut rest = str::from_utf8(value).map_err(|_| MalformedTags)?.trim();
        if rest == "*" && versions.is_none() {
            return Ok(Some(Versions::Any));
        }
        let versions = versions.get_or_insert_with(Vec::new);
        while !rest.is_empty() {
            // Elements of a list may be empty.
            if let Some(next) = rest.strip_prefix(',') {
                rest = next.trim_start();
                continue;
            }
            let is_weak = rest.starts_with("W/");
            let opened = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"').ok_or(MalformedTags)?;
            let (tag, after) = opened.split_once('"').ok_or(MalformedTags)?;
            let tag = without_coding(tag);
            has_tags = true;
            // A weak tag means "about the same": enough to change nothing, not enough to change
            // something. A tag that is not written as we write versions never matches.
            let counts = weak_counts || !is_weak;
            let version = tag.parse().ok().filter(|version: &u64| counts && version.to_string() == tag);
            versions.extend(version);
            rest = after.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(MalformedTags);
            }
        }
    }
    // A header that names nothing is a mistake: its caller counts on a condition.
    if versions.is_some() && !has_tags {
        return Err(MalformedTags);
    }
    Ok(versions.map(Versions::These))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a thing at version 3 matches.
    fn matches(values: &[&str]) -> Result<bool, MalformedTags> {
        let at = versions(values.iter().map(|value| value.as_bytes()), false)?;
        Ok(Condition { at, not_at: None }.holds(Some(3)))
    }

    #[test]
    fn a_version_matches_its_strong_tag_only() {
        for (values, fits) in [
            (&[][..], true),
            (&["*"], true),
            (&["\"3\""], true),
            (&["\"2\", \"3\""], true),
            (&["\"2\"", "\"3\""], true),
            (&["\"2\""], false),
            (&["W/\"3\""], false),
            (&["W/\"3\", \"3\""], true),
            (&["\"3-gzip\""], true),
            (&["\"3-br\""], false),
            (&["\"03\""], false),
            (&["\"x\""], false),
            (&["\"2\", , \"3\""], true),
            (&[",\"3\","], true),
        ] {
            assert_eq!(matches(values), Ok(fits), "{values:?}");
        }
    }

    #[test]
    fn a_weak_tag_is_enough_to_do_nothing() {
        for (value, fits) in [("W/\"3\"", false), ("\"3\"", false), ("W/\"2\"", true), ("W/\"x\"", true)] {
            let not_at = versions([value.as_bytes()].into_iter(), true).unwrap();
            assert_eq!(Condition { at: None, not_at }.holds(Some(3)), fits, "{value}");
        }
    }

    #[test]
    fn a_text_that_is_no_entity_tag_is_refused() {
        for value in ["", ",", "3", "\"3", "\"3\" \"4\"", "*, \"3\"", "\"3\", *", "w/\"3\""] {
            assert_eq!(matches(&[value]), Err(MalformedTags), "{value}");
        }
    }

    #[test]
    fn a_refusal_says_which_demand_it_was() {
        let detail = |condition: Condition, there| If(condition).refusal("queue", there).detail().to_owned();
        assert_eq!(detail(Condition::there(), None), "there is no such queue; nothing was done");
        assert_eq!(detail(Condition::at([2]), Some(3)), "the queue is at version 3; nothing was done");
        let expected = "If-None-Match: the queue is there, at version 3; nothing was done";
        assert_eq!(detail(Condition::absent(), Some(3)), expected);
        assert!(If(Condition::absent()).check("queue", None).is_ok());
        assert!(If(Condition::default()).check("queue", None).is_ok());
    }
}
