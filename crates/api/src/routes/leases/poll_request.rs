//! Checks a worker's poll. Called by the lease route; it reports all faults at once.

use std::time::Duration;

use punctual_client::{FieldError, LeaseRequest, Seconds};
use punctual_core::task::limits;
use punctual_scheduler::polls::{PollFilter, PollRequest};
use punctual_submission::fields::{NAME_RULE, is_name};

use crate::problem::Problem;
use crate::state::LeaseMillis;

/// The maximum number of queues or types in one request.
const FILTER_NAMES_MAX: usize = 64;
/// The longest wait of a poll.
const WAIT_MAX_MILLIS: u64 = 60_000;
/// The shortest lease.
const LEASE_MIN_MILLIS: u64 = 1_000;

/// The request as the poll queue takes it, or everything that is wrong with it.
pub(super) fn poll_request(tenant: String, request: LeaseRequest, leases: LeaseMillis) -> Result<PollRequest, Problem> {
    let mut faults = Vec::new();
    if !is_worker_id(&request.worker_id) {
        faults.push(FieldError::new("/worker_id", "must have 1 to 255 characters and no control characters"));
    }
    let filter = filter(&request, &mut faults);
    let max_tasks = match request.max_tasks {
        None => 1,
        Some(count) => {
            usize::try_from(count).ok().filter(|count| (1..=limits::LEASE_BATCH).contains(count)).unwrap_or_else(|| {
                faults.push(FieldError::new("/max_tasks", format!("must be from 1 to {}", limits::LEASE_BATCH)));
                1
            })
        }
    };
    let mut millis = |pointer: &str, seconds: Option<Seconds>, default: u64, least: u64, most: u64| {
        let given = seconds.map_or(Some(default), |seconds| seconds.to_millis_within(least, most));
        given.unwrap_or_else(|| {
            faults.push(FieldError::new(pointer, format!("must be from {} to {}", least / 1_000, most / 1_000)));
            default
        })
    };
    let wait = Duration::from_millis(millis("/wait_seconds", request.wait_seconds, 0, 0, WAIT_MAX_MILLIS));
    let lease_millis = millis("/lease_seconds", request.lease_seconds, leases.default, LEASE_MIN_MILLIS, leases.max);
    match filter {
        Some(filter) if faults.is_empty() => {
            Ok(PollRequest { tenant, worker: request.worker_id, filter, max_tasks, lease_millis, wait })
        }
        _ => Err(Problem::invalid(faults)),
    }
}

fn filter(request: &LeaseRequest, faults: &mut Vec<FieldError>) -> Option<PollFilter> {
    let (pointer, names, make): (_, _, fn(Vec<String>) -> PollFilter) = match (&request.queues, &request.types) {
        (Some(queues), None) => ("/queues", queues, PollFilter::Queues),
        (None, Some(types)) => ("/types", types, PollFilter::Kinds),
        (Some(_), Some(_)) => {
            faults.push(FieldError::new("/types", "cannot be given together with queues"));
            return None;
        }
        (None, None) => {
            faults.push(FieldError::new("", "must have queues or types"));
            return None;
        }
    };
    if !(1..=FILTER_NAMES_MAX).contains(&names.len()) {
        faults.push(FieldError::new(pointer, format!("must have 1 to {FILTER_NAMES_MAX} entries")));
        return None;
    }
    let odd = names.iter().enumerate().filter(|(_, name)| !is_name(name));
    faults.extend(odd.map(|(at, _)| FieldError::new(format!("{pointer}/{at}"), NAME_RULE)));
    let mut names = names.clone();
    names.sort_unstable();
    names.dedup();
    Some(make(names))
}

fn is_worker_id(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control) && text.chars().count() <= limits::NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(json: &str) -> Result<PollRequest, Vec<String>> {
        let request = serde_json::from_str(json).unwrap();
        let pointers = |problem: Problem| problem.errors().iter().map(|fault| fault.pointer.clone()).collect();
        poll_request("t".to_owned(), request, LeaseMillis::default()).map_err(pointers)
    }

    #[test]
    fn a_short_request_means_one_task_now_for_a_minute() {
        let request = checked(r#"{"worker_id":"w","queues":["a"]}"#).unwrap();
        assert_eq!((request.max_tasks, request.lease_millis, request.wait), (1, 60_000, Duration::ZERO));
        assert_eq!(request.filter, PollFilter::Queues(vec!["a".to_owned()]));
    }

    #[test]
    fn everything_can_be_said() {
        let request = checked(
            r#"{"worker_id":"w","types":["b","a","b"],"max_tasks":1000,"wait_seconds":0.25,"lease_seconds":3600}"#,
        )
        .unwrap();
        assert_eq!((request.max_tasks, request.lease_millis, request.wait.as_millis()), (1_000, 3_600_000, 250));
        assert_eq!(request.filter, PollFilter::Kinds(vec!["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let faults = checked(
            r#"{"worker_id":"a\u0000b","queues":["ok","","größe"],"max_tasks":1001,"wait_seconds":60.001,"lease_seconds":0.5}"#,
        );
        assert_eq!(
            faults.unwrap_err(),
            ["/worker_id", "/queues/1", "/queues/2", "/max_tasks", "/wait_seconds", "/lease_seconds"]
        );
    }

    #[test]
    fn exactly_one_of_queues_and_types() {
        for (json, pointer) in [
            (r#"{"worker_id":"w"}"#, ""),
            (r#"{"worker_id":"w","queues":["a"],"types":["a"]}"#, "/types"),
            (r#"{"worker_id":"w","queues":[]}"#, "/queues"),
        ] {
            assert_eq!(checked(json).unwrap_err(), [pointer], "{json}");
        }
        let many = serde_json::json!({"worker_id": "w", "types": vec!["x"; 65]});
        assert_eq!(checked(&many.to_string()).unwrap_err(), ["/types"]);
    }

    #[test]
    fn a_worker_is_named_by_up_to_255_characters() {
        let named = |name: String| checked(&serde_json::json!({"worker_id": name, "types": ["x"]}).to_string());
        assert!(named("é".repeat(255)).is_ok());
        assert!(named("é".repeat(256)).is_err());
        assert!(named(String::new()).is_err());
    }
}
