//! Changes of tasks that others change too: read, decide, write if nobody was faster, else
//! again.
//!
//! Used by every verb that changes one task. A caller gets one clear answer: what its change
//! did, or why it does not apply to the task as it is now.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::response::Response;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Change};
use punctual_core::store::Applied;
use punctual_core::task::Task;
use punctual_core::trail::Actor;

use crate::answer;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// How often a lost race is run again. Each loss means that somebody else has changed the task.
const ROUNDS: usize = 16;

/// What to do about a task as it is.
pub enum Decision {
    /// Nothing: it is as the caller wants it.
    Leave(StatusCode),
    /// This.
    Apply(Box<Change>, StatusCode),
}

/// Reads a task of a tenant.
pub async fn find(api: &Api, tenant: &str, id: TaskId) -> Result<Task, Problem> {
    api.store.get(tenant, vec![id]).await?.pop().flatten().ok_or_else(Problem::no_such_task)
}

/// Changes a task as `decide` says, and answers with the task as it is then.
pub async fn change(
    api: &Api,
    tenant: &str,
    id: TaskId,
    if_match: &IfMatch,
    decide: impl Fn(&Task, &By<'_>) -> Result<Decision, Problem>,
) -> Result<Response, Problem> {
    for _ in 0..ROUNDS {
        let task = find(api, tenant, id).await?;
        if_match.check(task.position.version)?;
        let by = By { now: api.clock.now(), node: api.node, actor: Actor::Client };
        match decide(&task, &by)? {
            Decision::Leave(status) => return Ok(answer::task(status, task)),
            Decision::Apply(change, status) => {
                if let Some(Applied::Done(_)) = api.store.apply(vec![(id, *change)]).await?.pop() {
                    return Ok(answer::task(status, find(api, tenant, id).await?));
                }
            }
        }
    }
    Err(Problem::new(Code::Conflict, "the task changed each time we tried; nothing was done").retry_after(1))
}

/// What `If-Match` demands of a task's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// Nothing: the header is absent, or `*`, and the task exists.
    Any,
    /// One of these entity tags.
    Tags(Vec<String>),
}

impl IfMatch {
    /// Reads the values of the header.
    pub fn parse<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Self, Problem> {
        let refused = || Problem::new(Code::InvalidHeader, "If-Match must be * or a list of entity tags such as \"3\"");
        let mut tags = None;
        for value in values {
            let mut rest = str::from_utf8(value).map_err(|_| refused())?.trim();
            if rest == "*" && tags.is_none() {
                return Ok(IfMatch::Any);
            }
            let tags = tags.get_or_insert_with(Vec::new);
            while !rest.is_empty() {
                let weak = rest.starts_with("W/");
                let opened = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"').ok_or_else(refused)?;
                let (tag, after) = opened.split_once('"').ok_or_else(refused)?;
                // A weak tag never matches here: it says "about the same", and we are asked for the same.
                if !weak {
                    tags.push(tag.to_owned());
                }
                rest = after.trim_start();
                rest = match rest.strip_prefix(',') {
                    Some(next) => next.trim_start(),
                    None if rest.is_empty() => rest,
                    None => return Err(refused()),
                };
            }
        }
        Ok(tags.map_or(IfMatch::Any, IfMatch::Tags))
    }

    /// The versions that it allows; none: any. What is no version of ours matches nothing.
    pub fn versions(&self) -> Option<Vec<u64>> {
        let number = |tag: &String| tag.parse().ok().filter(|version: &u64| version.to_string() == *tag);
        match self {
            IfMatch::Any => None,
            IfMatch::Tags(tags) => Some(tags.iter().filter_map(number).collect()),
        }
    }

    /// Refuses a task at another version.
    pub fn check(&self, version: u64) -> Result<(), Problem> {
        match self {
            IfMatch::Tags(tags) if !tags.contains(&version.to_string()) => {
                Err(Problem::new(Code::VersionMismatch, format!("the task is at version {version}; nothing was done")))
            }
            _ => Ok(()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::parse(parts.headers.get_all(IF_MATCH).iter().map(axum::http::HeaderValue::as_bytes))
    }
}

/// What `If-None-Match` demands: with `*`, that there is nothing yet; with entity tags, that it is none of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfNoneMatch {
    /// Nothing: the header is absent.
    Any,
    /// That there is nothing.
    Nothing,
    /// None of these entity tags.
    Tags(Vec<String>),
}

impl IfNoneMatch {
    /// Refuses something that is there at this version.
    pub fn check(&self, version: u64) -> Result<(), Problem> {
        let is_there = match self {
            IfNoneMatch::Any => false,
            IfNoneMatch::Nothing => true,
            IfNoneMatch::Tags(tags) => tags.contains(&version.to_string()),
        };
        let detail = || format!("If-None-Match: there is one, at version {version}; nothing was done");
        if is_there { Err(Problem::new(Code::VersionMismatch, detail())) } else { Ok(()) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IfNoneMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let values = || parts.headers.get_all(IF_NONE_MATCH).iter().map(axum::http::HeaderValue::as_bytes);
        let detail = "If-None-Match must be * or a list of entity tags such as \"3\"";
        match IfMatch::parse(values()).map_err(|_| Problem::new(Code::InvalidHeader, detail))? {
            IfMatch::Any if values().next().is_none() => Ok(IfNoneMatch::Any),
            IfMatch::Any => Ok(IfNoneMatch::Nothing),
            IfMatch::Tags(tags) => Ok(IfNoneMatch::Tags(tags)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(values: &[&str], version: u64) -> Result<bool, Code> {
        let demand = IfMatch::parse(values.iter().map(|value| value.as_bytes())).map_err(|problem| problem.code())?;
        Ok(demand.check(version).is_ok())
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
            (&["\"03\""], false),
            (&[""], false),
        ] {
            assert_eq!(matches(values, 3), Ok(fits), "{values:?}");
        }
    }

    #[test]
    fn what_is_no_entity_tag_is_refused() {
        for value in ["3", "\"3", "\"3\" \"4\"", "*, \"3\"", "\"3\", *", "w/\"3\""] {
            assert_eq!(matches(&[value], 3), Err(Code::InvalidHeader), "{value}");
        }
    }
}
