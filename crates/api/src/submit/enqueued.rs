//! What was submitted by SQL, inside a transaction of its submitter's own: the same body, judged by the same rules.
//!
//! Called by the node that takes it out of the inbox. Its submitter is gone by then, so that
//! faults are told in one sentence, for whoever looks after the server.

use punctual_client as wire;
use punctual_core::ids::TaskId;
use punctual_core::task::NewTask;

use super::Submitter;

impl Submitter<'_> {
    /// The task to store for what was submitted under `id`.
    pub fn check_enqueued(&self, id: TaskId, submission: &str) -> Result<NewTask, String> {
        let new: wire::NewTask = serde_json::from_str(submission).map_err(|fault| fault.to_string())?;
        match self.check(new, None) {
            Ok(task) => Ok(NewTask { id, ..task }),
            Err(problem) if problem.errors().is_empty() => Err(problem.detail().to_owned()),
            Err(problem) => {
                let told = problem.errors().iter().map(|fault| format!("{}: {}", fault.place(), fault.message));
                Err(told.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::NodeId;
    use punctual_core::time::Timestamp;

    use super::*;
    use crate::state::ApiConfig;

    fn check(submission: &str) -> Result<NewTask, String> {
        let (config, at) = (ApiConfig::default(), Timestamp::from_millis(1_779_472_800_000));
        Submitter::new(&config, "acme", at, NodeId::new(7)).check_enqueued(TaskId::new(), submission)
    }

    #[test]
    fn it_keeps_the_id_and_the_time_that_were_given_out() {
        let (config, at, id) = (ApiConfig::default(), Timestamp::from_millis(1_779_472_800_000), TaskId::new());
        let submitter = Submitter::new(&config, "acme", at, NodeId::new(7));
        let task = submitter.check_enqueued(id, r#"{"type": "t", "payload": {"a": [1.50]}, "delay_seconds": 2}"#);
        let task = task.unwrap();
        assert_eq!((task.id, task.created_at, task.execute_at), (id, at, at.plus_millis(2_000)));
        assert_eq!((task.lane.tenant.as_str(), task.body.payload.get()), ("acme", r#"{"a": [1.50]}"#));
    }

    #[test]
    fn all_that_is_wrong_is_told_in_one_sentence() {
        let told = check(r#"{"type": "", "callback_url": "http://169.254.169.254/"}"#).unwrap_err();
        assert!(told.starts_with("type: must be") && told.contains("; callback_url: points into a network"), "{told}");
        assert!(check("{").unwrap_err().contains("EOF"));
    }
}
