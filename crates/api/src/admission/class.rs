//! The classes of requests, each with bounds of its own. Called by [`super::Admission`].

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use axum::http::{Method, Request};
use punctual_core::store::PAGE_BYTES;
use tokio::sync::Semaphore;

use super::{
    ANSWER_WAITERS_MAX, BODY_SHARE, BODY_WAITERS_MAX, PermitPool, SMALL_BODY_BYTES, UNIT_BYTES, WAIT_MAX, WAIT_MIN,
};
use crate::unread::UnreadAnswers;

/// Lists that are read and written at once, at most; with few processors only half as many as there
/// are. A list takes a processor for tens of milliseconds, and one of the store's few readers. A
/// second list takes no less, so more at once would only delay everything else.
const LISTS_MAX: usize = 2;

/// The maximum number of lists that wait for a permit. They hold nothing but their connection.
const LIST_WAITERS_MAX: usize = 1_024;

/// What is kept for the answer to a read before its size is known: a large task.
const READ_ANSWER_BYTES: usize = 256 * 1_024;

/// What a request asks of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Submission,
    /// Reads many rows.
    List,
    /// Reads a few.
    Read,
    /// Changes something, leases or settles.
    Other,
}

impl RequestKind {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/tasks" | "/v1/tasks/batch") => Self::Submission,
            (&Method::GET | &Method::HEAD, path) if is_list(path) => Self::List,
            (&Method::GET | &Method::HEAD, _) => Self::Read,
            _ => Self::Other,
        }
    }
}

fn is_list(path: &str) -> bool {
    matches!(path, "/v1/tasks" | "/v1/dead-letters" | "/v1/schedules" | "/v1/queues" | "/v1/forecast" | "/v1/upcoming")
        || path.ends_with("/occurrences")
}

/// What the requests of one class share.
pub(super) struct RequestClass {
    pub name: &'static str,
    pub requests: PermitPool,
    pub bodies: PermitPool,
    /// All units of `bodies`.
    body_units: usize,
    pub answers: Arc<UnreadAnswers>,
    pub answer_waiters: Semaphore,
    /// What is kept for each answer; none if the answer is about as large as the body.
    read_bytes: Option<usize>,
    /// The wait of a request that waits alone.
    pub wait_min: Duration,
}

impl RequestClass {
    /// Requests that change something.
    pub(super) fn of_writes(name: &'static str, requests: usize, bytes: usize, answers: &Arc<UnreadAnswers>) -> Self {
        let (requests, body_units) = (requests.max(1), bytes.div_ceil(UNIT_BYTES).max(1));
        Self {
            name,
            requests: PermitPool::new(requests, requests),
            bodies: PermitPool::new(body_units, BODY_WAITERS_MAX),
            body_units,
            answers: Arc::clone(answers),
            answer_waiters: Semaphore::new(ANSWER_WAITERS_MAX),
            read_bytes: None,
            wait_min: WAIT_MIN,
        }
    }

    /// Requests that read a few rows.
    pub(super) fn of_reads(requests: usize, answers: &Arc<UnreadAnswers>) -> Self {
        Self { read_bytes: Some(READ_ANSWER_BYTES), ..Self::of_writes("reads", requests, 0, answers) }
    }

    /// Requests that read many rows. Each is much work, so they wait for each other as long as a
    /// client may want to wait.
    pub(super) fn of_lists(answers: &Arc<UnreadAnswers>) -> Self {
        let at_once = (available_parallelism().map_or(1, NonZero::get) / 2).clamp(1, LISTS_MAX);
        Self {
            requests: PermitPool::new(at_once, LIST_WAITERS_MAX),
            read_bytes: Some(PAGE_BYTES),
            wait_min: WAIT_MAX,
            ..Self::of_writes("lists", 0, 0, answers)
        }
    }

    /// The units a body takes: what is `announced`, but no more than its route reads, and no more
    /// than one share.
    pub(super) fn units_of(&self, announced: Option<u64>, longest: usize) -> u32 {
        let bytes = announced.map_or(longest, |bytes| usize::try_from(bytes).unwrap_or(longest).min(longest));
        let units =
            if bytes <= SMALL_BODY_BYTES { 0 } else { bytes.div_ceil(UNIT_BYTES).min(self.body_units / BODY_SHARE) };
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// The room that must be there for the answer to a request with a body of `units`; none if it
    /// is admitted without. The answer to a small write is small.
    pub(super) fn answer_bytes(&self, units: u32, leaves_unread: bool) -> Option<usize> {
        let of_body = (units as usize).saturating_mul(UNIT_BYTES);
        self.read_bytes.or_else(|| (units > 0 || leaves_unread).then_some(of_body))
    }
}
