//! Queues: what they are set to, and what is in them.

use std::collections::BTreeMap;

use punctual_core::queues as core;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::callback::CallbackBody;
use crate::form::{CallbackUrlForm, HeadersForm, NameForm};
use crate::objects::objects_only;
use crate::retry::{RetryPolicy, RetryPolicyFields};
use crate::seconds::Seconds;
use crate::words::words;

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// The maximum number of its tasks that are QUEUED or RUNNING, in the whole cluster; `null`: no
    /// limit.
    pub max_concurrency: Option<u32>,
    /// The maximum number of its tasks with one `concurrency_key` that are QUEUED or RUNNING, in
    /// the whole cluster; `null`: no limit.
    #[serde(default)]
    pub max_per_key: Option<u32>,
    /// How fast its tasks may begin, in the whole cluster; `null`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// Maximum number of live tasks; further submissions are refused. `null`: no limit.
    pub max_depth: Option<u64>,
    /// The default retry policy of its tasks; `null`: that of the server.
    pub retry_policy: Option<RetryPolicy>,
    /// The default time limit of a run of its tasks; `null`: that of the server.
    pub timeout_seconds: Option<Seconds>,
    /// Each of its tasks is delayed by a random time up to this value.
    pub dispatch_jitter_seconds: Seconds,
    /// What happens to the tasks behind a dead letter.
    pub on_dead_letter: OnDeadLetter,
    /// The default callback of its tasks; `null`: they wait for a pull worker.
    pub callback_url: Option<String>,
    /// Extra request headers of those callbacks. Left out of summaries.
    #[serde(default)]
    #[schema(required = false)]
    pub callback_headers: BTreeMap<String, String>,
    /// What the body of those callbacks is.
    #[serde(default)]
    #[schema(required = true)]
    pub callback_body: CallbackBody,
    /// Whether it is paused: none of its tasks begin.
    pub paused: bool,
    /// The pause; `null` if it is not paused.
    pub pause: Option<Pause>,
    /// How often it was set, paused, resumed or removed; also its `ETag`.
    pub version: u64,
    /// Its live tasks.
    pub counts: QueueCounts,
}

/// How fast tasks may begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RateLimit {
    /// Tasks that may start in a second.
    pub per_second: f64,
    /// Burst: tasks that may start at once after an idle period.
    pub burst: u32,
}

/// A pause of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// When it was paused.
    #[schema(value_type = String, format = DateTime)]
    pub paused_at: Timestamp,
    /// On whose behalf.
    pub paused_by: String,
    /// Why.
    pub reason: Option<String>,
    /// When it ends by itself; `null`: only when the queue is resumed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// The live tasks of a queue, by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub struct QueueCounts {
    /// Waiting for tasks they depend on.
    pub blocked: u64,
    /// Waiting for their time, a retry or a worker.
    pub pending: u64,
    /// Claimed and dispatched.
    pub queued: u64,
    /// With a worker.
    pub running: u64,
}

words! {
    /// What happens to the tasks behind a dead letter: those with its ordering key, and those that
    /// depend on it.
    #[derive(Default)]
    OnDeadLetter is core::OnDeadLetter {
        /// They continue, by their own policies.
        #[default]
        Continue,
        /// They wait until it is re-driven.
        Hold,
    }
}

/// The settings of a queue. An absent setting gets its default again.
///
/// The other fields of a queue (`pause`, `version`, `counts`) are accepted and ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct QueueSettings {
    /// Its name; if given, the same as in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NameForm>)]
    pub name: Option<String>,
    /// The maximum number of its tasks that run at once; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_concurrency: Option<i64>,
    /// The maximum number of its tasks with one `concurrency_key` that run at once; no limit if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_per_key: Option<i64>,
    /// How fast its tasks may begin; no limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimitFields>,
    /// Maximum number of live tasks; further submissions are refused. No limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub max_depth: Option<i64>,
    /// The default retry policy of its tasks; that of the server if absent, field by field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicyFields>,
    /// The default time limit of a run of its tasks, up to a day; that of the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 86_400)]
    pub timeout_seconds: Option<Seconds>,
    /// Each of its tasks is delayed by a random time up to this value, at most an hour; 0 if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 3_600)]
    pub dispatch_jitter_seconds: Option<Seconds>,
    /// What happens to the tasks behind a dead letter; they continue if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_dead_letter: Option<OnDeadLetter>,
    /// The default callback of its tasks; they wait for a pull worker if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<CallbackUrlForm>)]
    pub callback_url: Option<String>,
    /// Extra request headers of those callbacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HeadersForm>)]
    pub callback_headers: Option<BTreeMap<String, String>>,
    /// What the body of those callbacks is; `payload` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_body: Option<CallbackBody>,
    /// Pauses or resumes it; if absent it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// How fast tasks may begin, as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RateLimitFields {
    /// Tasks that may start in a second, from 0.0001 to 1000000.
    #[schema(minimum = 0.000_1, maximum = 1_000_000)]
    pub per_second: f64,
    /// Burst: tasks that may start at once after an idle period; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub burst: Option<i64>,
}

/// How a queue is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct PauseRequest {
    /// Why, for people; up to 1,024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1_024, pattern = "^[^\\x00]*$")]
    pub reason: Option<String>,
    /// When it ends by itself; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub until: Option<String>,
}

/// How a queue is resumed: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ResumeRequest {}

/// Fields of a queue that are not settings: ignored, so that a queue that was read can be written
/// back.
const READ_ONLY: &[&str] = &["pause", "version", "counts"];

objects_only!(QueueSettings without READ_ONLY, RateLimitFields, PauseRequest, ResumeRequest);
