//! Makes tasks from submissions that were stored earlier: in a schedule, or by SQL in the inbox.
//!
//! Called by the cron loop and the API for occurrences of schedules, and by the node that empties
//! the inbox. The rules are those of every other submission, with the queue settings of this
//! moment. The submitter is gone by then, so an error becomes one line of text for the operator.

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::schedules::Schedule;
use punctual_core::state::By;
use punctual_core::task::{Body, NewTask};
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

use crate::{BatchContext, SubmissionRules, TaskValidator, reading};

/// An occurrence that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// The instant that its task stands for.
    pub instant: Timestamp,
    /// When the task is due.
    pub execute_at: Timestamp,
    /// The time of the decision.
    pub now: Timestamp,
}

/// Makes tasks on behalf of this node (see the module). Cheap to clone.
#[derive(Clone, Debug)]
pub struct TaskFactory {
    rules: SubmissionRules,
    inbox_rules: SubmissionRules,
    node: NodeId,
}

impl TaskFactory {
    /// A factory that follows `rules`, apart from the payload's limit: that was checked when the
    /// submission was stored.
    pub fn new(rules: SubmissionRules, node: NodeId) -> Self {
        let rules = rules.without_payload_limit();
        Self { inbox_rules: rules.clone().of_inbox(), rules, node }
    }

    /// Makes the task of an occurrence, or returns why it cannot.
    pub fn of_occurrence(&self, schedule: &Schedule, firing: Firing) -> Result<NewTask, String> {
        let Firing { instant, execute_at, now } = firing;
        let by = By { now, node: self.node, actor: Actor::Schedule };
        let task = check(&self.rules, &schedule.tenant, &by, schedule.definition.task.get())?;
        // The queue's jitter was added to a task that is due now; it moves along with the due
        // instant.
        let spread = task.due_at.millis_since(task.execute_at);
        let trail = by.scheduled(instant);
        let body = Body { schedule_id: Some(schedule.id), ..task.body };
        Ok(NewTask { execute_at, due_at: execute_at.plus_millis(spread), body, trail, ..task })
    }

    /// Makes the task of a submission by SQL, which got `id` at `created_at`, or returns why it
    /// cannot.
    pub fn of_enqueued(
        &self,
        tenant: &str,
        id: TaskId,
        created_at: Timestamp,
        submission: &str,
    ) -> Result<NewTask, String> {
        let by = By { now: created_at, node: self.node, actor: Actor::Sql };
        Ok(NewTask { id, ..check(&self.inbox_rules, tenant, &by, submission)? })
    }
}

fn check(rules: &SubmissionRules, tenant: &str, by: &By<'_>, submission: &str) -> Result<NewTask, String> {
    let sent = reading::read(submission).map_err(|fault| fault.to_string())?;
    let validator = TaskValidator::by(rules, tenant, by);
    let checked = sent.check(|new, faults| validator.check(faults, new, None, &BatchContext::none()));
    checked.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use punctual_core::networks::AllowedNetworks;

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_779_472_800_000);

    fn enqueued(id: TaskId, submission: &str) -> Result<NewTask, String> {
        let rules = SubmissionRules { payload_bytes: 1, ..SubmissionRules::default() };
        TaskFactory::new(rules, NodeId::new(7)).of_enqueued("acme", id, AT, submission)
    }

    #[test]
    fn an_enqueued_task_keeps_its_id_and_time() {
        let id = TaskId::new();
        let task = enqueued(id, r#"{"type": "t", "payload": {"a": [1.50]}, "delay_seconds": 2}"#).unwrap();
        assert_eq!((task.id, task.created_at, task.execute_at), (id, AT, AT.plus_millis(2_000)));
        assert_eq!((task.lane.tenant.as_str(), task.body.payload.get()), ("acme", r#"{"a": [1.50]}"#));
    }

    #[test]
    fn an_enqueued_task_may_not_call_this_machine() {
        let networks = AllowedNetworks::loopback().allowing(["10.0.0.0/8".parse().unwrap()]);
        let rules = SubmissionRules { networks, ..SubmissionRules::default() };
        let factory = TaskFactory::new(rules, NodeId::new(7));
        let submit = |url: &str| {
            let submission = format!(r#"{{"type": "t", "callback_url": "{url}"}}"#);
            factory.of_enqueued("acme", TaskId::new(), AT, &submission)
        };
        for url in ["http://127.0.0.1:9/", "http://[::1]/", "http://0.0.0.0/"] {
            let refused = submit(url).unwrap_err();
            assert!(
                refused.starts_with("callback_url: points into a network that callbacks may not go to; "),
                "{url}: {refused}"
            );
        }
        let task = submit("http://10.1.2.3/").unwrap();
        assert!(task.trail.is_submitted_by_sql(), "by this the worker knows which names it may not follow");
    }

    #[test]
    fn all_faults_are_in_one_line() {
        let check = |submission| enqueued(TaskId::new(), submission).unwrap_err();
        let error = check(r#"{"type": "", "callback_url": "http://169.254.169.254/"}"#);
        assert!(
            error.starts_with("type: must be") && error.contains("; callback_url: points into a network"),
            "{error}"
        );
        assert_eq!(
            check(r#"{"type": "", "queue": 5}"#),
            "queue: must be a string; type: must be 1 to 255 of A-Z a-z 0-9 . _ : / -"
        );
        assert!(check("{").contains("ends inside an object"));
    }
}
