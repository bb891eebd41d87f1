//! What the body of a webhook's request is, and the object that a task may ask for.

use std::collections::BTreeMap;

use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::task as core;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::lease::DependencyResult;
use crate::words::words;

words! {
    /// What the body of a webhook's request is.
    #[derive(Default)]
    CallbackBody is core::CallbackBody {
        /// The payload, as it was submitted.
        #[default]
        Payload,
        /// An `Envelope` with the payload and the results of the task's dependencies.
        Envelope,
    }
}

/// The body of the request to a webhook whose task has the `callback_body` `envelope`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Envelope {
    /// The task.
    #[schema(value_type = String)]
    pub task_id: TaskId,
    /// What kind of work it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The queue it is in.
    pub queue: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The fencing token of this run.
    pub token: u64,
    /// When it should run.
    #[schema(value_type = String, format = DateTime)]
    pub execute_at: Timestamp,
    /// The submitter's labels.
    pub metadata: BTreeMap<String, String>,
    /// What was submitted, as it was submitted.
    #[schema(value_type = serde_json::Value)]
    pub payload: Json,
    /// What the tasks that it depends on returned, in the order of `depends_on`. `null` if they are
    /// more than 100, or larger than 1 MiB together: read them by their ids.
    pub dependencies: Option<Vec<DependencyResult>>,
}
