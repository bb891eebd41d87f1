//! The limits and defaults that submissions are checked against.
//!
//! The binary fills them in from the configuration and gives a clone to each caller.

use punctual_core::networks::AllowedNetworks;
use punctual_core::retry::RetryPolicy;

use crate::KnownQueues;

/// The limits and defaults of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SubmissionRules {
    /// The most bytes of a task's payload.
    pub payload_bytes: usize,
    /// The retry policy of a task that does not give one, field by field.
    pub retry_policy: RetryPolicy,
    /// The timeout of a run whose task does not give one.
    pub timeout_millis: u64,
    /// The settings of queues, as far as this node knows them.
    pub queues: KnownQueues,
    /// The special networks that callbacks may go to.
    pub networks: AllowedNetworks,
}

impl SubmissionRules {
    /// The same rules without a limit on the payload, for what was checked against one before. A
    /// limit that was lowered since must not reject what is stored.
    #[must_use]
    pub fn without_payload_limit(self) -> Self {
        Self { payload_bytes: usize::MAX, ..self }
    }
}

impl Default for SubmissionRules {
    fn default() -> Self {
        Self {
            payload_bytes: 256 * 1024,
            retry_policy: RetryPolicy::default(),
            timeout_millis: 300_000,
            queues: KnownQueues::default(),
            networks: AllowedNetworks::none(),
        }
    }
}
