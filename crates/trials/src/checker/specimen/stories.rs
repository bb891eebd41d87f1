//! The tasks of the specimen, each with its calls, leases, trail and runs.

use punctual_client::RunEnded;
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::state::State::{Blocked, Cancelled, Completed, DeadLettered, Pending, Queued, Running};
use serde_json::json;

use super::arguments::{LeaseAt, Life, RunAt, StepAt, Token, ok, refused, settle};
use super::{Specimen, at, stamp};
use crate::history::{Arrival, HistoryEvent, Occurred, Op, Scheduled, WorkerReport};

impl Specimen {
    /// The first worker is late, and the reaper takes the task back; the second completes it.
    pub(super) fn lost(&mut self) {
        let task = self.lost;
        self.submit_at(10, "lost", task, None);
        self.grant(LeaseAt { task, attempt: 1, token: Token(3), asked: 0, got: 20, expires: 1_010, payload: "lost" });
        self.grant(LeaseAt {
            task,
            attempt: 2,
            token: Token(6),
            asked: 1_000,
            got: 1_700,
            expires: 4_000,
            payload: "lost",
        });
        self.call_at(1_800, settle(task, Token(3), WorkerReport::Completed), refused(409));
        self.call_at(1_900, settle(task, Token(6), WorkerReport::Heartbeat), ok(200, task));
        self.call_at(2_000, settle(task, Token(6), WorkerReport::Completed), ok(200, task));
        let trail = [
            StepAt(10, Pending, "client", "submitted"),
            StepAt(10, Queued, "scheduler", "claimed"),
            StepAt(10, Running, "worker:w", "started"),
            StepAt(1_200, Pending, "reaper", "worker_lost"),
            StepAt(1_700, Queued, "scheduler", "claimed"),
            StepAt(1_700, Running, "worker:w", "started"),
            StepAt(2_000, Completed, "worker:w", "completed"),
        ];
        self.dump(
            "lost",
            task,
            &trail,
            &[
                RunAt { attempt: 1, started: 10, outcome: RunEnded::Lost },
                RunAt { attempt: 2, started: 1_700, outcome: RunEnded::Completed },
            ],
        );
    }

    /// A webhook whose time and payload are edited before it is due.
    pub(super) fn moved(&mut self) {
        let task = self.moved;
        self.submit_at(10, "moved", task, Some(at(500)));
        let edit = Op::Edit { task, due_at: Some(at(900)), payload: Some(json!("new")), if_match: Some(1) };
        self.call_at(100, edit, ok(200, task));
        let arrival = Arrival { task, attempt: 1, token: 4, payload: json!("new"), at: stamp(903) };
        self.history.events.push(HistoryEvent::Arrival(arrival));
        let trail = [
            StepAt(10, Pending, "client", "submitted"),
            StepAt(100, Pending, "client", "edited"),
            StepAt(900, Queued, "scheduler", "claimed"),
            StepAt(901, Running, "worker:n", "started"),
            StepAt(905, Completed, "worker:n", "completed"),
        ];
        self.dump("moved", task, &trail, &[RunAt { attempt: 1, started: 901, outcome: RunEnded::Completed }]);
    }

    /// A task that is cancelled before it is due.
    pub(super) fn cancelled(&mut self) {
        let task = self.cancelled;
        self.submit_at(10, "cancelled", task, Some(at(500)));
        self.call_at(200, Op::Cancel { task }, ok(200, task));
        let trail = [StepAt(10, Pending, "client", "submitted"), StepAt(200, Cancelled, "client", "cancelled")];
        self.dump("cancelled", task, &trail, &[]);
    }

    /// A task that fails for good, is re-driven and completes.
    pub(super) fn hopeless(&mut self) {
        let task = self.hopeless;
        self.submit_at(10, "hopeless", task, None);
        self.grant(LeaseAt {
            task,
            attempt: 1,
            token: Token(3),
            asked: 0,
            got: 20,
            expires: 9_000,
            payload: "hopeless",
        });
        self.call_at(50, settle(task, Token(3), WorkerReport::FailedForGood), ok(200, task));
        self.call_at(100, Op::Redrive { task }, ok(200, task));
        self.grant(LeaseAt {
            task,
            attempt: 1,
            token: Token(7),
            asked: 110,
            got: 120,
            expires: 9_000,
            payload: "hopeless",
        });
        self.call_at(150, settle(task, Token(7), WorkerReport::Completed), ok(200, task));
        let trail = [
            StepAt(10, Pending, "client", "submitted"),
            StepAt(10, Queued, "scheduler", "claimed"),
            StepAt(10, Running, "worker:w", "started"),
            StepAt(50, DeadLettered, "worker:w", "reported"),
            StepAt(100, Pending, "client", "redriven"),
            StepAt(115, Queued, "scheduler", "claimed"),
            StepAt(115, Running, "worker:w", "started"),
            StepAt(150, Completed, "worker:w", "completed"),
        ];
        self.dump(
            "hopeless",
            task,
            &trail,
            &[
                RunAt { attempt: 1, started: 10, outcome: RunEnded::Failed },
                RunAt { attempt: 1, started: 115, outcome: RunEnded::Completed },
            ],
        );
    }

    /// Three tasks of one ordering key.
    pub(super) fn turns(&mut self) {
        for (name, task, started) in [("turn-0", 0, 3_000), ("turn-1", 1, 3_200), ("turn-2", 2, 3_400)]
            .map(|(name, index, started)| (name, self.turns[index], started))
        {
            self.complete(name, task, Life { submitted: started - 1_000, started });
            self.submission(name).ordering_key = Some("key".to_owned());
        }
    }

    /// Two parents in a queue of one at a time, and their child.
    pub(super) fn family(&mut self) {
        let [child, one, other] = self.family;
        self.complete("parent-0", one, Life { submitted: 4_000, started: 4_100 });
        self.complete("parent-1", other, Life { submitted: 4_000, started: 4_500 });
        for parent in ["parent-0", "parent-1"] {
            self.submission(parent).queue = "narrow".to_owned();
        }
        self.history.limits.insert("narrow".to_owned(), 1);
        self.submit_at(4_020, "child", child, None);
        self.submission("child").depends_on = vec![one, other];
        self.grant(LeaseAt {
            task: child,
            attempt: 1,
            token: Token(4),
            asked: 4_600,
            got: 4_710,
            expires: 9_000,
            payload: "child",
        });
        self.call_at(4_800, settle(child, Token(4), WorkerReport::Completed), ok(200, child));
        let trail = [
            StepAt(4_020, Blocked, "client", "submitted"),
            StepAt(4_600, Pending, "resolver", "unblocked"),
            StepAt(4_700, Queued, "scheduler", "claimed"),
            StepAt(4_700, Running, "worker:w", "started"),
            StepAt(4_800, Completed, "worker:w", "completed"),
        ];
        self.dump("child", child, &trail, &[RunAt { attempt: 1, started: 4_700, outcome: RunEnded::Completed }]);
    }

    /// Two instants of a schedule.
    pub(super) fn fired(&mut self) {
        let schedule = ScheduleId::new();
        let mut occurrences = Vec::new();
        for (task, instant) in self.fired.into_iter().zip([1_000, 2_000]) {
            let trail = [
                StepAt(instant + 5, Pending, "schedule", "submitted"),
                StepAt(instant + 7, Queued, "scheduler", "claimed"),
                StepAt(instant + 8, Running, "worker:n", "started"),
                StepAt(instant + 9, Completed, "worker:n", "completed"),
            ];
            self.dump(
                "fired",
                task,
                &trail,
                &[RunAt { attempt: 1, started: instant + 8, outcome: RunEnded::Completed }],
            );
            let dumped = self.dumped(task);
            (dumped.key, dumped.scheduled) = (None, Some((schedule, at(instant))));
            (dumped.pushed, dumped.result) = (true, None);
            occurrences.push(Occurred { instant: at(instant), task: Some(task), reason: "due".to_owned() });
        }
        let (created_at, until) = (at(500), at(2_500));
        self.history.schedules.push(Scheduled { schedule, created_at, until, occurrences });
    }

    /// A task for pull workers that completes a tenth of a second after it started.
    fn complete(&mut self, name: &str, task: TaskId, life: Life) {
        let started = life.started;
        self.submit_at(life.submitted, name, task, None);
        self.grant(LeaseAt {
            task,
            attempt: 1,
            token: Token(3),
            asked: started - 10,
            got: started + 10,
            expires: started + 5_000,
            payload: name,
        });
        self.call_at(started + 100, settle(task, Token(3), WorkerReport::Completed), ok(200, task));
        let trail = [
            StepAt(life.submitted, Pending, "client", "submitted"),
            StepAt(started, Queued, "scheduler", "claimed"),
            StepAt(started, Running, "worker:w", "started"),
            StepAt(started + 100, Completed, "worker:w", "completed"),
        ];
        self.dump(name, task, &trail, &[RunAt { attempt: 1, started, outcome: RunEnded::Completed }]);
    }
}
