//! How the parts of a task are written in columns. Both stores read and write through this.
//!
//! A column that cannot be read is reported as [`Unreadable`], not as a fault of the database: one
//! bad row must not stop the others.

use std::collections::BTreeMap;

use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::state::State;
use punctual_core::store::TaskResult;
use punctual_core::task::{Callback, CallbackBody};
use punctual_core::time::Timestamp;

/// What NULL in `retry_policy` means: the first default. It never changes: rows with NULL keep this
/// policy when the default changes.
const FIRST_POLICY: RetryPolicy = RetryPolicy {
    max_retries: 3,
    backoff: Backoff::Exponential,
    backoff_millis: 30_000,
    max_backoff_millis: 3_600_000,
    jitter: Jitter::Full,
    delays_millis: Vec::new(),
    retry_on: None,
};

/// A column that does not hold what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub &'static str);

/// The state of a task and its result; none without a state that can be read. A result that cannot
/// be read is none, too: its task has finished, and its dependents run without it.
pub(crate) fn task_result(state: Option<i64>, result: Option<&str>) -> Option<TaskResult> {
    let state = state.and_then(State::from_code)?;
    Some(TaskResult { state, result: result.and_then(|text| json(text, "result").ok()) })
}

/// The document of a column.
pub(crate) fn json(text: &str, name: &'static str) -> Result<Json, Unreadable> {
    Json::trusted(text.to_owned()).map_err(|_| Unreadable(name))
}

/// The map of a column; NULL is an empty one.
pub(crate) fn map(text: Option<&str>, name: &'static str) -> Result<BTreeMap<String, String>, Unreadable> {
    text.map_or_else(|| Ok(BTreeMap::new()), |text| serde_json::from_str(text).map_err(|_| Unreadable(name)))
}

/// The retry policy of a column; NULL is the first default.
pub(crate) fn policy(text: Option<&str>) -> Result<RetryPolicy, Unreadable> {
    text.map_or(Ok(FIRST_POLICY), |text| serde_json::from_str(text).map_err(|_| Unreadable("retry_policy")))
}

/// The column of a map: NULL when it is empty, which is the common case.
pub(crate) fn map_column(map: &BTreeMap<String, String>) -> Option<String> {
    let written = || serde_json::to_string(map).expect("invariant: a map of strings can be written");
    (!map.is_empty()).then(written)
}

/// The column of a retry policy: NULL when it is the first default. A policy of the first five
/// fields is their list, which takes a third of the bytes and which every version reads; one with
/// later fields is an object, of which an older version reads what it knows.
pub(crate) fn policy_column(policy: &RetryPolicy) -> Option<String> {
    let RetryPolicy { max_retries, backoff, backoff_millis, max_backoff_millis, jitter, .. } = policy;
    let is_short = policy.delays_millis.is_empty() && policy.retry_on.is_none();
    let written = if is_short {
        serde_json::to_string(&(max_retries, backoff, backoff_millis, max_backoff_millis, jitter))
    } else {
        serde_json::to_string(policy)
    };
    let written = || written.expect("invariant: a policy of numbers and words can be written");
    (*policy != FIRST_POLICY).then(written)
}

/// What the body of a webhook is; NULL is the payload.
pub(crate) fn callback_body(text: Option<&str>) -> Result<CallbackBody, Unreadable> {
    text.map_or(Ok(CallbackBody::Payload), |text| CallbackBody::from_name(text).ok_or(Unreadable("callback_body")))
}

/// The column of what the body of a webhook is: NULL when it is the payload, which is the common
/// case.
pub(crate) fn callback_body_column(callback: Option<&Callback>) -> Option<&'static str> {
    callback.map(|callback| callback.body).filter(|body| *body != CallbackBody::default()).map(CallbackBody::as_str)
}

/// The column of a version or a number of milliseconds, saturated to what the column can hold.
pub(crate) fn number_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The number of a column. A negative one is 0.
pub(crate) fn number_from_column(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

/// The column of a count, saturated to what the column can hold.
pub(crate) fn count_column(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The column of an instant that may be missing.
pub(crate) fn instant_column(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_millis)
}

/// The column of a node: the same 64 bits.
pub(crate) const fn node_column(node: NodeId) -> i64 {
    node.number().cast_signed()
}

/// The node of a column.
pub(crate) const fn node_from_column(column: i64) -> NodeId {
    NodeId::new(column.cast_unsigned())
}

/// The column of a document.
pub(crate) fn json_column(json: Option<&Json>) -> Option<&str> {
    json.map(Json::get)
}

/// The column of a list of names.
pub(crate) fn names_column(names: &[String]) -> String {
    serde_json::to_string(names).expect("invariant: a list of strings can be written")
}

/// The list of names of a column. An unreadable one is empty: it is what a worker asked for last,
/// and the worker reports it again.
pub(crate) fn names(column: &str) -> Vec<String> {
    serde_json::from_str(column).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        let plain = RetryPolicy { max_retries: 9, ..RetryPolicy::default() };
        let retry_on = Some(["402", "timeout"].map(|kind| kind.parse().unwrap()).into());
        let listed = RetryPolicy { max_retries: 1, delays_millis: vec![86_400_000], ..RetryPolicy::default() };
        let chosen = RetryPolicy { retry_on, ..RetryPolicy::default() };
        for written in [plain, listed, chosen, RetryPolicy::default(), FIRST_POLICY] {
            assert_eq!(policy(policy_column(&written).as_deref()), Ok(written));
        }
    }

    #[test]
    fn policies_of_earlier_versions_mean_what_they_meant() {
        let object = r#"{"max_retries":9,"backoff":"fixed","backoff_millis":7,"max_backoff_millis":8,"jitter":"none"}"#;
        let list = r#"[9,"fixed",7,8,"none"]"#;
        let meant = RetryPolicy {
            max_retries: 9,
            backoff: Backoff::Fixed,
            backoff_millis: 7,
            max_backoff_millis: 8,
            jitter: Jitter::None,
            delays_millis: Vec::new(),
            retry_on: None,
        };
        assert_eq!(policy(Some(object)), Ok(meant.clone()));
        assert_eq!(policy_column(&meant).as_deref(), Some(list));
        assert_eq!(policy(None).map(|first| first.max_retries), Ok(3), "NULL is the first default for ever");
        assert_eq!(policy_column(&FIRST_POLICY), None);
    }
}
