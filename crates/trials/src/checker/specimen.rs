//! A small history that breaks no law, for the checker's tests to break in one place at a time.
//!
//! All instants are in milliseconds from the beginning of the history. One node does everything.
//!
//! - `lost`: a pull task whose first worker was late; the second completed it.
//! - `moved`: a webhook with a new time and a new payload.
//! - `cancelled`: a task that was cancelled before it began.
//! - `hopeless`: a task that failed for good, was re-driven and completed.
//! - `turns`: three tasks of one ordering key, one after the other.
//! - `family`: a task that depends on the next two, whose queue runs one task at a time.
//! - `fired`: the tasks of a schedule with the instants 1,000 and 2,000.

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use serde_json::json;

use crate::history::{
    Arrival, CallAnswer, Dumped, Grant, History, HistoryEvent, Op, RecordedCall, RecordedRun, Stamp, Submission, Term,
    TrailStep, Witness, WitnessedWrite, result_by,
};

mod arguments;
mod stories;

pub use arguments::{Handover, LeaseAt, Token, ok, refused, settle};
use arguments::{RunAt, StepAt};

/// The node that does everything, and the partition of every task except those of the schedule.
pub const NODE: &str = "node_1";
pub const PARTITION: &str = "partition 7";
const OF_SCHEDULE: &str = "partition 8";

/// A history under construction or under attack.
pub struct Specimen {
    pub history: History,
    pub lost: TaskId,
    pub moved: TaskId,
    pub cancelled: TaskId,
    pub hopeless: TaskId,
    pub turns: [TaskId; 3],
    pub family: [TaskId; 3],
    pub fired: [TaskId; 2],
}

/// An instant of the specimen, in milliseconds from its beginning.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

/// The stamp of that instant.
pub fn stamp(millis: i64) -> Stamp {
    Stamp(at(millis).as_millis() * 1_000)
}

impl Specimen {
    /// The history that breaks no law.
    pub fn clean() -> Self {
        let [lost, moved, cancelled, hopeless] = [(); 4].map(|()| TaskId::new());
        let [turns, family] = [(); 2].map(|()| [(); 3].map(|()| TaskId::new()));
        let fired = [(); 2].map(|()| TaskId::new());
        let history = History::default();
        let mut made = Self { history, lost, moved, cancelled, hopeless, turns, family, fired };
        made.lost();
        made.moved();
        made.cancelled();
        made.hopeless();
        made.turns();
        made.family();
        made.fired();
        made.witness_again();
        made
    }

    /// Makes the witness agree with the trails as they are now.
    pub fn witness_again(&mut self) {
        self.history.witness = Some(self.witnessed());
    }

    /// Moves everything that a task did after its submission by `millis`, later or earlier.
    pub fn shift(&mut self, task: TaskId, millis: i64) {
        let dumped = self.dumped(task);
        dumped.trail[1..].iter_mut().for_each(|step| step.at = step.at.plus_millis(millis));
        dumped.runs.iter_mut().for_each(|run| run.started_at = run.started_at.plus_millis(millis));
        let by = |stamp: &mut Stamp| stamp.0 += millis * 1_000;
        for event in &mut self.history.events {
            match event {
                HistoryEvent::Grant(grant) if grant.task == task => {
                    grant.expires_at = grant.expires_at.plus_millis(millis);
                    [&mut grant.asked, &mut grant.got].into_iter().for_each(by);
                }
                HistoryEvent::Call(call) if call.op.task() == Some(task) => {
                    [&mut call.invoked, &mut call.answered].into_iter().for_each(by);
                }
                _ => {}
            }
        }
        self.witness_again();
    }

    /// A witness to one node that owns everything from the beginning, and writes every step.
    fn witnessed(&self) -> Witness {
        let term = |(moment, resource): (u64, &str)| Term {
            moment,
            resource: resource.to_owned(),
            holder: Some(NODE.to_owned()),
            term: 1,
        };
        let terms = [(1, PARTITION), (2, OF_SCHEDULE), (3, "leader")].map(term).to_vec();
        let steps = self.history.dump.iter().flat_map(|dumped| dumped.trail.iter().map(|step| (dumped.task, step)));
        let mut steps: Vec<(TaskId, &TrailStep)> = steps.collect();
        steps.sort_by_key(|(_, step)| step.at);
        let write = |(moment, (task, step)): (u64, (TaskId, &TrailStep))| WitnessedWrite {
            moment,
            task,
            version: step.version,
            partition: if self.fired.contains(&task) { OF_SCHEDULE } else { PARTITION }.to_owned(),
        };
        Witness { terms, writes: (10..).zip(steps).map(write).collect(), ..Witness::default() }
    }

    /// The witness.
    pub fn witness(&mut self) -> &mut Witness {
        self.history.witness.as_mut().expect("there was a witness")
    }

    /// Gives a resource to another holder just before a write to a task.
    pub fn hand_over(&mut self, handover: Handover<'_>) {
        let Handover { resource, holder, term, before: task, version } = handover;
        let witness = self.witness();
        let write = witness.writes.iter_mut().find(|write| (write.task, write.version) == (task, version));
        let moment = write.map(|write| write.moment).expect("that write was seen");
        // Later writes move by one, so that this moment is free.
        for later in witness.writes.iter_mut().filter(|write| write.moment >= moment) {
            later.moment += 1;
        }
        let (resource, holder) = (resource.to_owned(), holder.map(str::to_owned));
        witness.terms.push(Term { moment, resource, holder, term });
    }

    /// A submission under a key at this instant, answered with `task`.
    pub fn submit_at(&mut self, millis: i64, key: &str, task: TaskId, due_at: Option<Timestamp>) {
        let submission = Submission { key: key.to_owned(), due_at, payload: json!(key), ..Submission::default() };
        self.call_at(millis, Op::Submit(submission), ok(201, task));
    }

    /// The submission under a key.
    pub fn submission(&mut self, key: &str) -> &mut Submission {
        let submission = |event| match event {
            &mut HistoryEvent::Call(RecordedCall { op: Op::Submit(ref mut submission), .. })
                if submission.key == key =>
            {
                Some(submission)
            }
            _ => None,
        };
        self.history.events.iter_mut().find_map(submission).expect("the key was used")
    }

    /// A call whose effect was at this instant.
    pub fn call_at(&mut self, millis: i64, op: Op, answer: CallAnswer) {
        let (invoked, answered) = (stamp(millis - 1), stamp(millis + 1));
        self.history.events.push(HistoryEvent::Call(RecordedCall { op, invoked, answered, answer }));
    }

    /// A lease, asked for and got.
    pub fn grant(&mut self, lease: LeaseAt<'_>) {
        let grant = Grant {
            worker: "w".to_owned(),
            task: lease.task,
            attempt: lease.attempt,
            token: lease.token.0,
            expires_at: at(lease.expires),
            payload: json!(lease.payload),
            asked: stamp(lease.asked),
            got: stamp(lease.got),
        };
        self.history.events.push(HistoryEvent::Grant(grant));
    }

    fn dump(&mut self, key: &str, task: TaskId, trail: &[StepAt<'_>], runs: &[RunAt]) {
        let mut before = None;
        let trail: Vec<TrailStep> = (1..)
            .zip(trail)
            .map(|(version, &StepAt(millis, to, actor, reason))| {
                let from = before.replace(to);
                let (actor, node, reason) = (actor.to_owned(), NODE.to_owned(), reason.to_owned());
                TrailStep { at: at(millis), from, to, actor, node, reason, version }
            })
            .collect();
        let last = trail.last().expect("a trail has a step");
        let (state, version) = (last.to, last.version);
        let completed_by = (key != "moved" && state == State::Completed).then(|| version - 1);
        let run = |run: &RunAt| RecordedRun {
            attempt: run.attempt,
            started_at: at(run.started),
            outcome: Some(run.outcome),
            http_status: None,
            uncounted: None,
        };
        self.history.dump.push(Dumped {
            task,
            key: Some(key.to_owned()),
            scheduled: None,
            state,
            version,
            execute_at: trail[0].at,
            payload: json!(key),
            result: completed_by.map(|token| result_by("w", token)),
            max_retries: 3,
            backoff_millis: 200,
            timeout_millis: 5_000,
            pushed: key == "moved",
            trail,
            runs: runs.iter().map(run).collect(),
            read: stamp(60_000),
        });
    }

    /// The final state of a task.
    pub fn dumped(&mut self, task: TaskId) -> &mut Dumped {
        self.history.dump.iter_mut().find(|dumped| dumped.task == task).expect("the task is in the dump")
    }

    /// Cuts the history of a task after its first `steps` steps.
    pub fn cut(&mut self, task: TaskId, steps: usize) {
        let dumped = self.dumped(task);
        dumped.trail.truncate(steps);
        let last = dumped.trail.last().expect("a trail has a step");
        (dumped.state, dumped.version) = (last.to, last.version);
        dumped.runs.truncate(dumped.trail.iter().filter(|step| step.reason == "started").count());
    }

    /// The grant with this token.
    pub fn granted(&mut self, task: TaskId, token: Token) -> &mut Grant {
        let grant = |event| match event {
            &mut HistoryEvent::Grant(ref mut grant) if (grant.task, grant.token) == (task, token.0) => Some(grant),
            _ => None,
        };
        self.history.events.iter_mut().find_map(grant).expect("the token was granted")
    }

    /// The only webhook that arrived.
    pub fn arrival(&mut self) -> &mut Arrival {
        let arrival =
            |event| if let &mut HistoryEvent::Arrival(ref mut arrival) = event { Some(arrival) } else { None };
        self.history.events.iter_mut().find_map(arrival).expect("a webhook arrived")
    }

    /// The calls that satisfy a condition.
    pub fn calls(&mut self, wanted: impl Fn(&Op) -> bool) -> impl Iterator<Item = &mut RecordedCall> {
        self.history.events.iter_mut().filter_map(move |event| match event {
            HistoryEvent::Call(call) if wanted(&call.op) => Some(call),
            _ => None,
        })
    }
}
