//! A small history in which all is well, for tests to break in one place at a time.
//!
//! `lost`: a pull task whose first worker was late; the second completed it. `moved`: a webhook with a new time and a
//! new payload. `cancelled`: one that never began. `hopeless`: failed for good, re-driven, completed. `turns`: three tasks of
//! one ordering key, one after the other. `family`: a task that depends on the next two, whose queue has one place. `fired`:
//! what a schedule made at 1,000 and 2,000. One node does it all.

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::state::State::{self, Blocked, Cancelled, Completed, DeadLettered, Pending, Queued, Running};
use punctual_core::time::Timestamp;
use serde_json::json;

use crate::history::{
    Answer, Arrival, Call, Dumped, Event, Grant, History, Occurred, Op, Run, Said, Scheduled, Shown, Stamp, Step,
    Submission, Term, Witness, Write, result_by,
};

/// The node that does everything, and the partition that every task is in but those of the schedule.
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
    /// All is well.
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

    fn lost(&mut self) {
        let task = self.lost;
        self.submit("lost", task, None, 0);
        self.grant(task, 1, 3, (0, 20), 1_010, "lost");
        self.grant(task, 2, 6, (1_000, 1_700), 4_000, "lost");
        self.call(settle(task, 3, Said::Completed), 1_800, refused(409));
        self.call(settle(task, 6, Said::Heartbeat), 1_900, ok(200, task));
        self.call(settle(task, 6, Said::Completed), 2_000, ok(200, task));
        let trail = [
            (10, Pending, "client", "submitted"),
            (10, Queued, "scheduler", "claimed"),
            (10, Running, "worker:w", "started"),
            (1_200, Pending, "reaper", "worker_lost"),
            (1_700, Queued, "scheduler", "claimed"),
            (1_700, Running, "worker:w", "started"),
            (2_000, Completed, "worker:w", "completed"),
        ];
        self.dump("lost", task, &trail, &[(1, 10, "lost"), (2, 1_700, "completed")]);
    }

    fn moved(&mut self) {
        let task = self.moved;
        self.submit("moved", task, Some(at(500)), 0);
        let edit = Op::Edit { task, due_at: Some(at(900)), payload: Some(json!("new")), if_match: Some(1) };
        self.call(edit, 100, ok(200, task));
        let arrival = Arrival { task, attempt: 1, token: 4, payload: json!("new"), at: stamp(903) };
        self.history.events.push(Event::Arrival(arrival));
        let trail = [
            (10, Pending, "client", "submitted"),
            (100, Pending, "client", "edited"),
            (900, Queued, "scheduler", "claimed"),
            (901, Running, "worker:n", "started"),
            (905, Completed, "worker:n", "completed"),
        ];
        self.dump("moved", task, &trail, &[(1, 901, "completed")]);
    }

    fn cancelled(&mut self) {
        let task = self.cancelled;
        self.submit("cancelled", task, Some(at(500)), 0);
        self.call(Op::Cancel { task }, 200, ok(200, task));
        let trail = [(10, Pending, "client", "submitted"), (200, Cancelled, "client", "cancelled")];
        self.dump("cancelled", task, &trail, &[]);
    }

    fn hopeless(&mut self) {
        let task = self.hopeless;
        self.submit("hopeless", task, None, 0);
        self.grant(task, 1, 3, (0, 20), 9_000, "hopeless");
        self.call(settle(task, 3, Said::FailedForGood), 50, ok(200, task));
        self.call(Op::Redrive { task }, 100, ok(200, task));
        self.grant(task, 1, 7, (110, 120), 9_000, "hopeless");
        self.call(settle(task, 7, Said::Completed), 150, ok(200, task));
        let trail = [
            (10, Pending, "client", "submitted"),
            (10, Queued, "scheduler", "claimed"),
            (10, Running, "worker:w", "started"),
            (50, DeadLettered, "worker:w", "told"),
            (100, Pending, "client", "redriven"),
            (115, Queued, "scheduler", "claimed"),
            (115, Running, "worker:w", "started"),
            (150, Completed, "worker:w", "completed"),
        ];
        self.dump("hopeless", task, &trail, &[(1, 10, "failed"), (1, 115, "completed")]);
    }

    fn turns(&mut self) {
        for (name, task, from) in [("turn-0", 0, 3_000), ("turn-1", 1, 3_200), ("turn-2", 2, 3_400)]
            .map(|(name, place, from)| (name, self.turns[place], from))
        {
            self.done(name, task, from - 1_000, from);
            self.submission(name).ordering_key = Some("key".to_owned());
        }
    }

    fn family(&mut self) {
        let [child, one, other] = self.family;
        self.done("parent-0", one, 4_000, 4_100);
        self.done("parent-1", other, 4_000, 4_500);
        for parent in ["parent-0", "parent-1"] {
            self.submission(parent).queue = "narrow".to_owned();
        }
        self.history.limits.insert("narrow".to_owned(), 1);
        self.submit("child", child, None, 4_010);
        self.submission("child").depends_on = vec![one, other];
        self.grant(child, 1, 4, (4_600, 4_710), 9_000, "child");
        self.call(settle(child, 4, Said::Completed), 4_800, ok(200, child));
        let trail = [
            (4_020, Blocked, "client", "submitted"),
            (4_600, Pending, "resolver", "unblocked"),
            (4_700, Queued, "scheduler", "claimed"),
            (4_700, Running, "worker:w", "started"),
            (4_800, Completed, "worker:w", "completed"),
        ];
        self.dump("child", child, &trail, &[(1, 4_700, "completed")]);
    }

    fn fired(&mut self) {
        let schedule = ScheduleId::new();
        let mut occurrences = Vec::new();
        for (task, instant) in self.fired.into_iter().zip([1_000, 2_000]) {
            let trail = [
                (instant + 5, Pending, "schedule", "submitted"),
                (instant + 7, Queued, "scheduler", "claimed"),
                (instant + 8, Running, "worker:n", "started"),
                (instant + 9, Completed, "worker:n", "completed"),
            ];
            self.dump("fired", task, &trail, &[(1, instant + 8, "completed")]);
            let dumped = self.dumped(task);
            (dumped.key, dumped.scheduled) = (None, Some((schedule, at(instant))));
            (dumped.pushed, dumped.result) = (true, None);
            occurrences.push(Occurred { instant: at(instant), task: Some(task), reason: "due".to_owned() });
        }
        let (created_at, until) = (at(500), at(2_500));
        self.history.schedules.push(Scheduled { schedule, created_at, until, occurrences });
    }

    /// A task for pull workers that is submitted at one instant, begins at another, and completes a tenth of a second later.
    fn done(&mut self, name: &str, task: TaskId, submitted: i64, from: i64) {
        self.submit(name, task, None, submitted - 10);
        self.grant(task, 1, 3, (from - 10, from + 10), from + 5_000, name);
        self.call(settle(task, 3, Said::Completed), from + 100, ok(200, task));
        let trail = [
            (submitted, Pending, "client", "submitted"),
            (from, Queued, "scheduler", "claimed"),
            (from, Running, "worker:w", "started"),
            (from + 100, Completed, "worker:w", "completed"),
        ];
        self.dump(name, task, &trail, &[(1, from, "completed")]);
    }

    /// The witness sees everything as the trails tell it now.
    pub fn witness_again(&mut self) {
        self.history.witness = Some(self.witnessed());
    }

    /// Has everything that a task did after its submission happen later, or earlier.
    pub fn shift(&mut self, task: TaskId, millis: i64) {
        let dumped = self.dumped(task);
        dumped.trail[1..].iter_mut().for_each(|step| step.at = step.at.plus_millis(millis));
        dumped.runs.iter_mut().for_each(|run| run.started_at = run.started_at.plus_millis(millis));
        let by = |stamp: &mut Stamp| stamp.0 += millis * 1_000;
        for event in &mut self.history.events {
            match event {
                Event::Grant(grant) if grant.task == task => {
                    grant.expires_at = grant.expires_at.plus_millis(millis);
                    [&mut grant.asked, &mut grant.got].into_iter().for_each(by);
                }
                Event::Call(call) if call.op.task() == Some(task) => {
                    [&mut call.invoked, &mut call.answered].into_iter().for_each(by);
                }
                _ => {}
            }
        }
        self.witness_again();
    }

    /// One node holds everything from the beginning, and writes every step by itself.
    fn witnessed(&self) -> Witness {
        let term = |(moment, resource): (u64, &str)| Term {
            moment,
            resource: resource.to_owned(),
            holder: Some(NODE.to_owned()),
            term: 1,
        };
        let terms = [(1, PARTITION), (2, OF_SCHEDULE), (3, "leader")].map(term).to_vec();
        let steps = self.history.dump.iter().flat_map(|dumped| dumped.trail.iter().map(|step| (dumped.task, step)));
        let mut steps: Vec<(TaskId, &Step)> = steps.collect();
        steps.sort_by_key(|(_, step)| step.at);
        let write = |(moment, (task, step)): (u64, (TaskId, &Step))| Write {
            moment,
            task,
            version: step.version,
            partition: if self.fired.contains(&task) { OF_SCHEDULE } else { PARTITION }.to_owned(),
        };
        Witness { terms, writes: (10..).zip(steps).map(write).collect(), ..Witness::default() }
    }

    /// What the database saw.
    pub fn witness(&mut self) -> &mut Witness {
        self.history.witness.as_mut().expect("there was a witness")
    }

    /// Somebody comes to hold something, or gives it up, just before the last write to a task.
    pub fn term(&mut self, resource: &str, holder: Option<&str>, term: u64, before: (TaskId, u64)) {
        let witness = self.witness();
        let write = witness.writes.iter_mut().find(|write| (write.task, write.version) == before);
        let moment = write.map(|write| write.moment).expect("that write was seen");
        // Room for it: nothing else was at that moment.
        for later in witness.writes.iter_mut().filter(|write| write.moment >= moment) {
            later.moment += 1;
        }
        let (resource, holder) = (resource.to_owned(), holder.map(str::to_owned));
        witness.terms.push(Term { moment, resource, holder, term });
    }

    /// A submission under a key, answered with `task`.
    pub fn submit(&mut self, key: &str, task: TaskId, due_at: Option<Timestamp>, millis: i64) {
        let submission = Submission { key: key.to_owned(), due_at, payload: json!(key), ..Submission::default() };
        self.call(Op::Submit(submission), millis + 10, ok(201, task));
    }

    /// What was submitted under a key.
    pub fn submission(&mut self, key: &str) -> &mut Submission {
        let submission = |event| match event {
            &mut Event::Call(Call { op: Op::Submit(ref mut submission), .. }) if submission.key == key => {
                Some(submission)
            }
            _ => None,
        };
        self.history.events.iter_mut().find_map(submission).expect("the key was used")
    }

    /// A call whose effect was at this instant.
    pub fn call(&mut self, op: Op, millis: i64, answer: Answer) {
        let (invoked, answered) = (stamp(millis - 1), stamp(millis + 1));
        self.history.events.push(Event::Call(Call { op, invoked, answered, answer }));
    }

    /// A lease, asked for and got.
    pub fn grant(&mut self, task: TaskId, attempt: u32, token: u64, (asked, got): (i64, i64), expiry: i64, does: &str) {
        let grant = Grant {
            worker: "w".to_owned(),
            task,
            attempt,
            token,
            expires_at: at(expiry),
            payload: json!(does),
            asked: stamp(asked),
            got: stamp(got),
        };
        self.history.events.push(Event::Grant(grant));
    }

    fn dump(&mut self, key: &str, task: TaskId, trail: &[(i64, State, &str, &str)], runs: &[(u32, i64, &str)]) {
        let mut before = None;
        let trail: Vec<Step> = (1..)
            .zip(trail)
            .map(|(version, &(millis, to, actor, reason))| {
                let from = before.replace(to);
                let (actor, node, reason) = (actor.to_owned(), NODE.to_owned(), reason.to_owned());
                Step { at: at(millis), from, to, actor, node, reason, version }
            })
            .collect();
        let last = trail.last().expect("a trail has a step");
        let (state, version) = (last.to, last.version);
        let completed_by = (key != "moved" && state == Completed).then(|| version - 1);
        let run = |&(attempt, millis, outcome): &(u32, i64, &str)| Run {
            attempt,
            started_at: at(millis),
            outcome: Some(outcome.to_owned()),
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

    /// How a task stood in the end.
    pub fn dumped(&mut self, task: TaskId) -> &mut Dumped {
        self.history.dump.iter_mut().find(|dumped| dumped.task == task).expect("the task is in the dump")
    }

    /// Forgets what came after the first `steps` steps of a task.
    pub fn cut(&mut self, task: TaskId, steps: usize) {
        let dumped = self.dumped(task);
        dumped.trail.truncate(steps);
        let last = dumped.trail.last().expect("a trail has a step");
        (dumped.state, dumped.version) = (last.to, last.version);
        dumped.runs.truncate(dumped.trail.iter().filter(|step| step.reason == "started").count());
    }

    /// The grant with this token.
    pub fn granted(&mut self, task: TaskId, token: u64) -> &mut Grant {
        let grant = |event| match event {
            &mut Event::Grant(ref mut grant) if (grant.task, grant.token) == (task, token) => Some(grant),
            _ => None,
        };
        self.history.events.iter_mut().find_map(grant).expect("the token was granted")
    }

    /// The only webhook that arrived.
    pub fn arrival(&mut self) -> &mut Arrival {
        let arrival = |event| if let &mut Event::Arrival(ref mut arrival) = event { Some(arrival) } else { None };
        self.history.events.iter_mut().find_map(arrival).expect("a webhook arrived")
    }

    /// The calls that satisfy a condition.
    pub fn calls(&mut self, wanted: impl Fn(&Op) -> bool) -> impl Iterator<Item = &mut Call> {
        self.history.events.iter_mut().filter_map(move |event| match event {
            Event::Call(call) if wanted(&call.op) => Some(call),
            _ => None,
        })
    }
}

/// What a worker says.
pub fn settle(task: TaskId, token: u64, said: Said) -> Op {
    Op::Settle { worker: "w".to_owned(), task, token, said }
}

/// A 4xx.
pub fn refused(status: u16) -> Answer {
    Answer::Refused { status, code: String::new() }
}

/// A 2xx.
pub fn ok(status: u16, task: TaskId) -> Answer {
    Answer::Ok(Shown { status, task: Some(task), ..Shown::default() })
}
