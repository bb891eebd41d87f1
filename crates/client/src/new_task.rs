//! Requests of submitters: new tasks, changes of waiting ones and of dead letters.

use std::collections::BTreeMap;

use punctual_core::json::Json;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::callback::CallbackBody;
use crate::dependency::{self, Dependency, OnDependencyFailure};
use crate::form::{CallbackUrlForm, HeadersForm, IdempotencyKeyForm, LabelsForm, NameForm, TaskKeyForm};
use crate::objects::objects_only;
use crate::priority::Priority;
use crate::retry::RetryPolicyFields;
use crate::seconds::Seconds;
use crate::unique;

/// A task to submit. Only `type` is required.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct NewTask {
    /// What kind of work it is.
    #[serde(rename = "type")]
    #[schema(value_type = NameForm, example = "invoice.send")]
    pub kind: String,
    /// What the worker gets: any JSON, `null` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Json>,
    /// The queue; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NameForm>)]
    pub queue: Option<String>,
    /// The URL that webhook workers push it to, http or https. Absent: it waits for a pull worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CallbackUrlForm>)]
    pub callback_url: Option<String>,
    /// Extra request headers of the webhook; hop-by-hop headers and those that Punctual sets are
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "unique::strings")]
    #[schema(value_type = Option<HeadersForm>)]
    pub callback_headers: Option<BTreeMap<String, String>>,
    /// What the body of the webhook's request is; `payload` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_body: Option<CallbackBody>,
    /// When to run it. The past means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub execute_at: Option<String>,
    /// When to run it, from now, up to 100 years; not together with `execute_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 3_155_760_000_i64)]
    pub delay_seconds: Option<Seconds>,
    /// How urgent it is; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// A second submission with the same key returns the first task. The header `Idempotency-Key`
    /// does the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<IdempotencyKeyForm>)]
    pub idempotency_key: Option<String>,
    /// How it is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicyFields>,
    /// How long one run may take, from 0.001 up to 86,400; 300 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 86_400)]
    pub timeout_seconds: Option<Seconds>,
    /// It fails with code `expired` if it has not started by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// The submitter's own labels: up to 32, keys up to 64 characters, values up to 512.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "unique::strings")]
    #[schema(value_type = Option<LabelsForm>)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Tasks of one tenant with the same key run one at a time, in order of `execute_at`, then of
    /// submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TaskKeyForm>)]
    pub ordering_key: Option<String>,
    /// At most `max_per_key` tasks of its queue with the same key run at a time; the queue's
    /// settings say how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TaskKeyForm>)]
    pub concurrency_key: Option<String>,
    /// Tasks that must have completed before this one runs: ids, and in a batch also the indices of
    /// its other tasks, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "dependency::list")]
    #[schema(max_items = 10_000)]
    pub depends_on: Option<Vec<Dependency>>,
    /// What happens to it when one of them does not complete; `cancel` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_dependency_failure: Option<OnDependencyFailure>,
}

impl NewTask {
    /// A task of this type that is due at once.
    pub fn of_type(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }
}

/// What to change of a task that has not begun. An absent field stays as it is.
///
/// Given members of `retry_policy` replace the task's; `metadata` replaces all labels; `payload`
/// may become `null`; `expires_at: null` removes the expiry; no other field may be `null`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TaskPatch {
    /// A new time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub execute_at: Option<Option<String>>,
    /// A new time, from now; not together with `execute_at`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = f64, minimum = 0, maximum = 3_155_760_000_i64, nullable = false)]
    pub delay_seconds: Option<Option<Seconds>>,
    /// A new payload.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Json>,
    /// A new priority.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Priority, nullable = false)]
    pub priority: Option<Option<Priority>>,
    /// What to change of the retry policy.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = RetryPolicyFields, nullable = false)]
    pub retry_policy: Option<Option<RetryPolicyFields>>,
    /// A new expiry, or none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Option<String>>,
    /// New labels instead of the old.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given_strings")]
    #[schema(value_type = LabelsForm, nullable = false)]
    pub metadata: Option<Option<BTreeMap<String, String>>>,
    /// Where it is pushed to instead; `null`: it waits for a pull worker.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<CallbackUrlForm>)]
    pub callback_url: Option<Option<String>>,
    /// New extra headers of the webhook instead of the old.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given_strings")]
    #[schema(value_type = HeadersForm, nullable = false)]
    pub callback_headers: Option<Option<BTreeMap<String, String>>>,
    /// Another body of the webhook's request.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = CallbackBody, nullable = false)]
    pub callback_body: Option<Option<CallbackBody>>,
    /// Another queue. Its `max_depth` does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = NameForm, nullable = false)]
    pub queue: Option<Option<String>>,
    /// How long one run may take.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = f64, exclusive_minimum = 0, maximum = 86_400, nullable = false)]
    pub timeout_seconds: Option<Option<Seconds>>,
    /// Another ordering key, or none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = Option<TaskKeyForm>)]
    pub ordering_key: Option<Option<String>>,
}

/// How a dead letter is tried again.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Redrive {
    /// Another payload; absent keeps the task's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Json>,
    /// Whether the tasks that were cancelled or failed because of it wait again, and those because
    /// of them; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub dependents: Option<bool>,
}

/// How a waiting task is made due: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RunTask {}

/// How a dead letter is discarded: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct PurgeTask {}

/// Distinguishes a field that is `null` from one that is absent.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

type Strings = BTreeMap<String, String>;

#[expect(clippy::option_option, reason = "absent, null and given are three things in a patch")]
fn given_strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Strings>>, D::Error> {
    unique::strings(deserializer).map(Some)
}

objects_only!(NewTask, TaskPatch, Redrive, RunTask, PurgeTask);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_differ_in_a_patch() {
        let patch: TaskPatch = serde_json::from_str(r#"{"expires_at":null,"payload":null,"priority":null}"#).unwrap();
        assert_eq!(patch.expires_at, Some(None));
        assert_eq!(patch.payload, Some(Json::null()));
        assert_eq!(patch.priority, Some(None));
        assert!(patch.execute_at.is_none() && patch.metadata.is_none());
    }

    #[test]
    fn unknown_fields_and_duplicate_keys_are_refused() {
        for text in [
            r#"{"type":"a","state":"RUNNING"}"#,
            r#"{"type":"a","type":"b"}"#,
            r#"{"type":"a","metadata":{"k":"1","k":"2"}}"#,
            r#"{"type":"a","payload":{"k":1,"k":2}}"#,
            r#"{"type":"a","retry_policy":{"retries":1}}"#,
        ] {
            assert!(serde_json::from_str::<NewTask>(text).is_err(), "{text}");
        }
    }
}
