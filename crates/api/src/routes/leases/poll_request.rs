//! Checks a worker's poll. Called by the lease route; it reports all faults at once.

use std::time::Duration;

use punctual_client::LeaseRequest;
use punctual_core::task::limits;
use punctual_scheduler::polls::{PollFilter, PollRequest};
use punctual_submission::Faults;

use crate::state::LeaseMillis;

/// The maximum number of queues or types in one request.
const FILTER_NAMES_MAX: usize = 64;
/// The longest wait of a poll.
const WAIT_MAX_MILLIS: u64 = 60_000;
/// The shortest lease.
const LEASE_MIN_MILLIS: u64 = 1_000;

/// The request as the poll queue takes it; none only with a fault.
pub(super) fn poll_request(
    faults: &mut Faults,
    tenant: String,
    request: LeaseRequest,
    leases: LeaseMillis,
) -> Option<PollRequest> {
    if !is_worker_id(&request.worker_id) {
        faults.add("/worker_id", "must have 1 to 255 characters and no control characters");
    }
    let filter = filter(&request, faults);
    let tasks = 1..=i64::try_from(limits::LEASE_BATCH).unwrap_or(i64::MAX);
    let max_tasks = faults.whole("/max_tasks", request.max_tasks, tasks, "");
    let wait = faults.seconds("/wait_seconds", request.wait_seconds, WAIT_MAX_MILLIS);
    let lease_millis = faults.seconds_from("/lease_seconds", request.lease_seconds, LEASE_MIN_MILLIS, leases.max);
    Some(PollRequest {
        tenant,
        worker: request.worker_id,
        filter: filter?,
        max_tasks: max_tasks.and_then(|most: u32| usize::try_from(most).ok()).unwrap_or(1),
        lease_millis: lease_millis.unwrap_or(leases.default),
        wait: Duration::from_millis(wait.unwrap_or(0)),
    })
}

fn filter(request: &LeaseRequest, faults: &mut Faults) -> Option<PollFilter> {
    let (pointer, names, make): (_, _, fn(Vec<String>) -> PollFilter) = match (&request.queues, &request.types) {
        (Some(queues), None) => ("/queues", queues, PollFilter::Queues),
        (None, Some(types)) => ("/types", types, PollFilter::Kinds),
        (Some(_), Some(_)) => {
            faults.add("/types", "must not be given together with queues");
            return None;
        }
        // Either was given, but is no list.
        (None, None) if faults.is_left_out("/queues") || faults.is_left_out("/types") => return None,
        (None, None) => {
            faults.add("", "must have queues or types");
            return None;
        }
    };
    if !(1..=FILTER_NAMES_MAX).contains(&names.len()) {
        faults.add(pointer, format!("must have 1 to {FILTER_NAMES_MAX} entries"));
        return None;
    }
    for (at, name) in names.iter().enumerate() {
        faults.name(&format!("{pointer}/{at}"), name);
    }
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
    use punctual_submission::{Sent, SubmissionError};

    use super::*;

    fn checked(json: &str) -> Result<PollRequest, Vec<String>> {
        let request = serde_json::from_str(json).unwrap();
        let check =
            |request, faults: &mut Faults| poll_request(faults, "t".to_owned(), request, LeaseMillis::default());
        let pointers = |error: SubmissionError| error.faults.into_iter().map(|fault| fault.pointer).collect();
        Sent::good(request).check(check).map_err(pointers)
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
