//! The instants of a schedule while a worker holds one of its tasks, for each overlap policy. The
//! same checks hold for one process, after a restart, and for leaders that follow each other.

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use super::{create, every_second, expect_every_second, live, occurrences, outcomes, statuses, tasks, until_outcomes};
use crate::it::world::{Caller, SOON};

/// The reasons of an occurrence that fired at its time.
const FIRED: [&str; 3] = ["on_time", "caught_up", "previous_ended"];

/// A schedule that fires every second, and the lease of one of its tasks.
pub struct Held {
    pub made: Value,
    queue: String,
    lease: Value,
}

impl Held {
    /// Creates a schedule with this policy as its name, and returns once a worker holds its first
    /// task.
    pub async fn start(caller: &Caller, policy: &str) -> Self {
        let schedule = every_second(policy, json!({"overlap_policy": policy, "catchup": "all"}));
        // The worker already waits for the task.
        let (lease, made) = tokio::join!(caller.lease_one(policy), create(caller, &schedule));
        Self { made, queue: policy.to_owned(), lease }
    }

    /// The task that is held.
    pub fn task(&self) -> &str {
        self.lease["task"]["task_id"].as_str().expect("an id")
    }

    /// Waits until `count` instants are decided; returns those from the one whose task is held.
    pub async fn decided(&self, caller: &Caller, count: usize) -> Vec<Value> {
        let all = eventually(&format!("{count} instants are decided"), SOON, async || {
            let all = occurrences(caller, &self.made).await;
            if all.len() >= count { Ok(all) } else { Err(format!("{all:#?}")) }
        })
        .await;
        expect_every_second(&all);
        let own = all.iter().position(|one| one["task_id"] == *self.task()).expect("the record of the task");
        all[own..].to_vec()
    }

    /// Completes the held task.
    async fn complete(&self, caller: &Caller) {
        caller.report("complete", &self.lease, json!({})).await.expect(200);
    }

    /// Waits until one more instant has fired than now.
    async fn until_fired(&self, caller: &Caller, fired: usize) {
        let all = until_outcomes(caller, &self.made, "fired", fired + 1).await;
        expect_every_second(&all);
    }

    /// `skip`: nothing runs beside the held task; later instants run.
    pub async fn expect_skipped(&self, caller: &Caller, decided: usize) {
        let all = self.decided(caller, decided).await;
        expect(&all[..1], "fired", &FIRED);
        expect(&all[1..], "skipped", &["previous_live"]);
        assert_eq!(live(&tasks(caller, &self.made).await), 1);
        self.complete(caller).await;
        self.until_fired(caller, 1).await;
    }

    /// `buffer_one`: the first instant waits and runs next.
    pub async fn expect_one_kept_back(&self, caller: &Caller, decided: usize) {
        let all = self.decided(caller, decided).await;
        expect(&all[..1], "fired", &FIRED);
        expect(&all[1..2], "buffered", &["waits_for_previous"]);
        expect(&all[2..], "skipped", &["one_waits"]);
        assert_eq!(tasks(caller, &self.made).await.len(), 1);
        self.complete(caller).await;
        let second = caller.lease_one(&self.queue).await;
        let all = self.decided(caller, decided).await;
        expect(&all[1..2], "fired", &["previous_ended"]);
        assert_eq!(all[1]["task_id"], second["task"]["task_id"]);
    }

    /// `buffer_all`: all instants wait and run one at a time, in order.
    pub async fn expect_all_kept_back(&self, caller: &Caller, decided: usize) {
        let all = self.decided(caller, decided).await;
        expect(&all[..1], "fired", &FIRED);
        expect(&all[1..], "buffered", &["waits_for_previous"]);
        self.expect_in_order(caller).await;
    }

    /// The waiting occurrences run one at a time, in the order of their instants.
    pub async fn expect_in_order(&self, caller: &Caller) {
        let all = occurrences(caller, &self.made).await;
        let waiting: Vec<&Value> = all.iter().filter(|one| one["outcome"] == "buffered").collect();
        assert!(!waiting.is_empty(), "{all:#?}");
        let mut lease = self.lease.clone();
        for waited in waiting {
            assert_eq!(live(&tasks(caller, &self.made).await), 1, "one at a time");
            caller.report("complete", &lease, json!({})).await.expect(200);
            lease = caller.lease_one(&self.queue).await;
            let all = occurrences(caller, &self.made).await;
            let own = all.iter().find(|one| one["task_id"] == lease["task"]["task_id"]).expect("its record");
            assert_eq!(own["instant"], waited["instant"], "in order");
            expect(std::slice::from_ref(own), "fired", &["previous_ended"]);
        }
    }

    /// `cancel_other`: the last instant waits until the held task, which is asked to stop, has
    /// stopped.
    pub async fn expect_stop_asked(&self, caller: &Caller, decided: usize) {
        let all = self.decided(caller, decided).await;
        let (last, before) = all[1..].split_last().expect("two at the least");
        expect(&all[..1], "fired", &FIRED);
        expect(before, "skipped", &["superseded"]);
        expect(std::slice::from_ref(last), "buffered", &["waits_for_stop"]);
        assert_eq!(caller.task(self.task()).await["status"], "RUNNING", "it has not stopped yet");
        assert_eq!(live(&tasks(caller, &self.made).await), 1);
        let fired = outcomes(&occurrences(caller, &self.made).await).iter().filter(|one| **one == "fired").count();
        caller.report("heartbeat", &self.lease, json!({})).await.problem_code(410, "cancelled");
        caller.until(self.task(), "CANCELLED").await;
        self.until_fired(caller, fired).await;
    }

    /// `terminate_other`: the last instant runs at once, and the task before it is cancelled.
    pub async fn expect_ended(&self, caller: &Caller, decided: usize) {
        let all = self.decided(caller, decided).await;
        // Of several instants that were due at once, the last has run.
        let (fired, skipped): (Vec<Value>, Vec<Value>) = all.iter().cloned().partition(|one| one["outcome"] == "fired");
        expect(&fired, "fired", &FIRED);
        expect(&skipped, "skipped", &["superseded"]);
        assert_eq!(fired.last(), all.last());
        let refused = caller.report("complete", &self.lease, json!({})).await;
        assert!([409, 410].contains(&refused.status()), "{refused}");
        let made = tasks(caller, &self.made).await;
        let (_, before) = made.split_last().expect("some");
        assert!(statuses(before).iter().all(|status| *status == "CANCELLED"), "{made:#?}");
        assert!(before.len() >= 2 && live(&made) <= 1, "{made:#?}");
    }

    /// `allow_all`: each instant runs, whatever else runs.
    pub async fn expect_side_by_side(&self, caller: &Caller, decided: usize) {
        let all = self.decided(caller, decided).await;
        expect(&all, "fired", &FIRED);
        assert!(live(&tasks(caller, &self.made).await) >= all.len(), "{all:#?}");
        self.complete(caller).await;
    }
}

/// All occurrences have this outcome for one of these reasons, and a task if they fired.
#[track_caller]
fn expect(occurrences: &[Value], outcome: &str, reasons: &[&str]) {
    for one in occurrences {
        let reason = one["reason"].as_str().unwrap_or_default();
        let is_so = one["outcome"] == outcome && reasons.contains(&reason);
        assert!(is_so && one["task_id"].is_string() == (outcome == "fired"), "not {outcome}, {reasons:?}: {one:#}");
    }
}
