//! How the parts of a task are written in columns. Both stores read and write through this.
//!
//! A column that cannot be read is reported as [`Unreadable`], not as a fault of the database: one
//! bad row must not stop the others.

use std::collections::BTreeMap;

use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::time::Timestamp;

/// What NULL in `retry_policy` means. It never changes: rows with NULL keep this policy when the
/// default changes.
const USUAL_POLICY: RetryPolicy = RetryPolicy {
    max_retries: 3,
    backoff: Backoff::Exponential,
    backoff_millis: 30_000,
    max_backoff_millis: 3_600_000,
    jitter: Jitter::Full,
};

/// A column that does not hold what was written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(pub &'static str);

/// The document of a column.
pub(crate) fn json(text: &str, name: &'static str) -> Result<Json, Unreadable> {
    Json::trusted(text.to_owned()).map_err(|_| Unreadable(name))
}

/// The map of a column; NULL is an empty one.
pub(crate) fn map(text: Option<&str>, name: &'static str) -> Result<BTreeMap<String, String>, Unreadable> {
    text.map_or_else(|| Ok(BTreeMap::new()), |text| serde_json::from_str(text).map_err(|_| Unreadable(name)))
}

/// The retry policy of a column; NULL is the usual one.
pub(crate) fn policy(text: Option<&str>) -> Result<RetryPolicy, Unreadable> {
    text.map_or(Ok(USUAL_POLICY), |text| serde_json::from_str(text).map_err(|_| Unreadable("retry_policy")))
}

/// The column of a map: NULL when it is empty, which is the common case.
pub(crate) fn map_column(map: &BTreeMap<String, String>) -> Option<String> {
    let written = || serde_json::to_string(map).expect("invariant: a map of strings can be written");
    (!map.is_empty()).then(written)
}

/// The column of a retry policy: NULL when it is the usual one.
pub(crate) fn policy_column(policy: &RetryPolicy) -> Option<String> {
    let written = || serde_json::to_string(policy).expect("invariant: a policy of numbers and words can be written");
    (*policy != USUAL_POLICY).then(written)
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
