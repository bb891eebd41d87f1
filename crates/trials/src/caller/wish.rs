//! A task to submit: what is sent, and what the history keeps of it.

use punctual_core::ids::TaskId;
use punctual_core::task::OnDependencyFailure;
use punctual_core::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::history::Submission;

/// A task to submit, the same however often it is sent.
#[derive(Clone, Debug)]
pub struct Wish {
    body: Value,
    key: String,
    key_in_header: bool,
}

impl Wish {
    /// A task for pull workers, due at once. Retried after a fixed, short delay, as the checker
    /// expects.
    pub fn new(key: impl Into<String>, queue: &str) -> Self {
        let key = key.into();
        let body = json!({
            "type": "trial",
            "queue": queue,
            "payload": {"of": key},
            "idempotency_key": key,
            "timeout_seconds": 10,
            "retry_policy": {"max_retries": 100, "backoff": "fixed", "backoff_seconds": 0.2, "jitter": "none"},
        });
        Self { body, key, key_in_header: false }
    }

    /// Of another type, and so in another lane.
    #[must_use]
    pub fn of_type(self, kind: &str) -> Self {
        self.with("type", json!(kind))
    }

    /// In another queue.
    #[must_use]
    pub fn in_queue(self, queue: &str) -> Self {
        self.with("queue", json!(queue))
    }

    /// Due at an instant.
    #[must_use]
    pub fn due_at(self, at: Timestamp) -> Self {
        self.with("execute_at", json!(at))
    }

    /// Not to be started after an instant.
    #[must_use]
    pub fn expires_at(self, at: Timestamp) -> Self {
        self.with("expires_at", json!(at))
    }

    /// With this many seconds for a run.
    #[must_use]
    pub fn timeout_seconds(self, seconds: u64) -> Self {
        self.with("timeout_seconds", json!(seconds))
    }

    /// Pushed to a webhook.
    #[must_use]
    pub fn pushed_to(self, url: &str) -> Self {
        self.with("callback_url", json!(url))
    }

    /// With an ordering key.
    #[must_use]
    pub fn ordered_by(self, key: &str) -> Self {
        self.with("ordering_key", json!(key))
    }

    /// Not before these have finished, with the policy for one that does not complete.
    #[must_use]
    pub fn after(self, tasks: &[TaskId], on_failure: OnDependencyFailure) -> Self {
        self.with("depends_on", json!(tasks)).with("on_dependency_failure", json!(on_failure))
    }

    /// With this many retries.
    #[must_use]
    pub fn retries(mut self, most: u32) -> Self {
        self.body["retry_policy"]["max_retries"] = json!(most);
        self
    }

    /// With another payload.
    #[must_use]
    pub fn payload(self, payload: Value) -> Self {
        self.with("payload", payload)
    }

    /// The same, with its key in the header instead of in the body.
    #[must_use]
    pub fn keyed_by_header(mut self) -> Self {
        if let Some(fields) = self.body.as_object_mut() {
            fields.remove("idempotency_key");
        }
        self.key_in_header = true;
        self
    }

    /// The key that goes into the header.
    pub fn header_key(&self) -> Option<&str> {
        self.key_in_header.then_some(&self.key)
    }

    /// The body of the request.
    pub fn body(&self) -> &Value {
        &self.body
    }

    /// The submission as the history keeps it.
    pub fn submission(&self) -> Submission {
        let instant = |field: &str| self.body[field].as_str().and_then(|text| Timestamp::parse(text).ok());
        Submission {
            key: self.key.clone(),
            queue: self.body["queue"].as_str().unwrap_or_default().to_owned(),
            due_at: instant("execute_at"),
            expires_at: instant("expires_at"),
            payload: self.body["payload"].clone(),
            ordering_key: self.body["ordering_key"].as_str().map(str::to_owned),
            depends_on: Vec::deserialize(&self.body["depends_on"]).unwrap_or_default(),
            on_failure: OnDependencyFailure::deserialize(&self.body["on_dependency_failure"]).unwrap_or_default(),
        }
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.body[field] = value;
        self
    }
}
