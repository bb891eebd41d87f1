//! The expected content of a store, in plain maps, for
//! [`random_histories_match_a_model`](super::random_histories_match_a_model).
//!
//! A row is the task that every read must return. Where the contract leaves a choice to the store
//! (the author of a trail entry, the end of a dispatched task's hold), the model adopts the store's
//! answer after it has checked the rest.

use std::collections::BTreeMap;

use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::state::{Change, State};
use punctual_core::store::{Applied, Claim, Claimant, Claimed, DispatchTo, Inserted};
use punctual_core::task::{Edit, Hold, NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Trail;

use super::batches::after;
use super::claim::next_due;
use super::{GRACE_MILLIS, WORKER, assert_same, is_done};

/// The rows, and the keys under which they were submitted.
#[derive(Default)]
pub(super) struct Model {
    pub(super) rows: BTreeMap<TaskId, Task>,
    keys: BTreeMap<(String, String), (TaskId, [u8; 32])>,
}

impl Model {
    /// Checks the answers of `insert`.
    pub(super) fn insert(&mut self, submitted: &[NewTask], answers: Vec<Inserted>) {
        assert_eq!(answers.len(), submitted.len());
        for (new, answer) in submitted.iter().zip(answers) {
            let key = new.idempotency.as_ref().map(|of| (new.lane.tenant.clone(), of.key.clone()));
            let fingerprint = new.idempotency.as_ref().map_or([0; 32], |of| of.fingerprint);
            match (key.as_ref().and_then(|key| self.keys.get(key)), answer) {
                (None, Inserted::Created(task)) => {
                    assert_eq!((task.id, &task.lane.key, task.position.version), (new.id, &new.lane, 1));
                    assert_eq!((task.due_at, task.expires_at), (new.execute_at, new.expires_at));
                    self.rows.insert(task.id, task);
                    if let Some(key) = key {
                        self.keys.insert(key, (new.id, fingerprint));
                    }
                }
                (Some((first, same)), Inserted::Replayed(task)) if *same == fingerprint => {
                    assert_eq!(task.id, *first);
                    assert_same_row(&task, &self.rows[first]);
                }
                (Some((first, other)), Inserted::KeyReused(id)) if *other != fingerprint => assert_eq!(id, *first),
                (known, answer) => panic!("{:?} ({known:?}) was answered {answer:?}", new.idempotency),
            }
        }
    }

    /// The waiting tasks of a lane, in the order in which they are taken.
    fn waiting(&self, lane: LaneId) -> Vec<&Task> {
        let mut waiting: Vec<&Task> =
            self.rows.values().filter(|task| task.lane.id == lane && task.state() == State::Pending).collect();
        waiting.sort_by_key(|task| (task.due_at, task.id));
        waiting
    }

    /// Those of them that a claim may take.
    fn seen_by(&self, claim: &Claim, lane: LaneId) -> Vec<&Task> {
        let mut waiting = self.waiting(lane);
        if let Claimant::Dispatch { from: Some(from), .. } = &claim.claimant {
            waiting.retain(|task| task.due_at >= *from);
        }
        waiting
    }

    /// Due tasks of the claim's lanes that have expired: those a claim may fail.
    pub(super) fn expired(&self, claim: &Claim, now: Timestamp) -> Vec<TaskId> {
        let due = |task: &&Task| task.due_at <= now && task.has_expired(now);
        claim.lanes.iter().flat_map(|(lane, _)| self.seen_by(claim, *lane)).filter(due).map(|task| task.id).collect()
    }

    /// Checks the answer of `claim`; `failed` are the expired tasks that it failed.
    pub(super) fn claim(&mut self, claim: &Claim, answer: Claimed, failed: Vec<Task>, now: Timestamp) {
        assert_eq!(answer.expired, failed.len(), "claim reported another number of expired tasks than it failed");
        for task in failed {
            let row = self.rows.get_mut(&task.id).expect("the model has it");
            row.position.state = State::Failed;
            row.position.version += 1;
            row.completed_at = Some(now);
            row.trail = grown(&row.trail, &task.trail, &[(row.position.version, State::Failed)]);
        }
        let found = next_due(&answer);
        let mut taken = answer.tasks.into_iter().peekable();
        let mut room = claim.limit;
        for (lane, limit) in &claim.lanes {
            let good = |task: &&Task| task.due_at <= now && !task.has_expired(now);
            let expected: Vec<TaskId> = self
                .seen_by(claim, *lane)
                .into_iter()
                .filter(good)
                .take(room.min(*limit))
                .map(|task| task.id)
                .collect();
            let mut given = 0;
            while let Some(task) = taken.next_if(|task| task.lane.id == *lane) {
                assert_eq!(Some(&task.id), expected.get(given), "taken out of order, or over a limit");
                self.take(&task, &claim.claimant, now);
                given += 1;
            }
            let left = self.seen_by(claim, *lane).first().map(|task| task.due_at);
            assert!(
                given == expected.len() || answer.expired > 0 && left.is_some_and(|due| due <= now),
                "{given} of {} due tasks were taken",
                expected.len()
            );
            if let Some(due) = found.get(lane) {
                assert_eq!(*due, left, "the next due instant of {lane:?}");
            } else {
                assert!(room == 0 || *limit == 0, "{lane:?} was visited and is not returned");
            }
            room -= given;
        }
        assert!(taken.next().is_none(), "taken from a lane that the claim does not name");
    }

    fn take(&mut self, found: &Task, claimant: &Claimant, now: Timestamp) {
        let row = self.rows.get_mut(&found.id).expect("the model has it");
        let hold = found.hold.clone().expect("a claimed task is held");
        let millis = |millis: u64| i64::try_from(millis).expect("a short time");
        row.position.attempts += 1;
        let steps = match claimant {
            Claimant::Dispatch { to: DispatchTo::Worker { name, grace_millis }, .. } => {
                row.position.state = State::Running;
                let end = now.plus_millis(millis(row.body.timeout_millis + grace_millis));
                assert!(hold.node.is_some(), "the node holds its webhooks");
                assert_eq!((hold.worker.as_str(), hold.since, hold.expires_at), (name.as_str(), now, end));
                row.hold = Some(hold);
                (row.worker, row.started_at) = (Some(name.clone()), Some(now));
                vec![(row.position.version + 1, State::Queued), (row.position.version + 2, State::Running)]
            }
            Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis }, .. } => {
                row.position.state = State::Queued;
                assert_eq!((hold.since, hold.expires_at), (now, now.plus_millis(millis(*visibility_millis))));
                row.hold = Some(hold);
                vec![(row.position.version + 1, State::Queued)]
            }
            Claimant::Worker { name, lease_millis, .. } => {
                row.position.state = State::Running;
                row.hold = Some(Hold {
                    worker: name.clone(),
                    node: None,
                    since: now,
                    expires_at: now.plus_millis(millis(*lease_millis)),
                    deadline_at: now.plus_millis(millis(row.body.timeout_millis)),
                    lease_millis: *lease_millis,
                });
                (row.worker, row.started_at) = (Some(name.clone()), Some(now));
                vec![(row.position.version + 1, State::Queued), (row.position.version + 2, State::Running)]
            }
        };
        row.position.version += u64::try_from(steps.len()).expect("one or two");
        row.trail = grown(&row.trail, &found.trail, &steps);
        assert_same_row(found, row);
    }

    /// The tenant of a task.
    pub(super) fn tenant(&self, id: TaskId) -> String {
        self.rows[&id].tenant().to_owned()
    }

    /// Checks the answer of `start`; `after` is the task as it was read afterwards.
    pub(super) fn start(&mut self, id: TaskId, version: u64, answer: Option<Task>, after: &Task, now: Timestamp) {
        let row = self.rows.get_mut(&id).expect("the model has it");
        if (row.position.state, row.position.version) != (State::Queued, version) {
            assert!(answer.is_none(), "{:?} was started at {version}", row.position);
            return;
        }
        if row.has_expired(now) {
            assert!(answer.is_none(), "{:?} was started past its expiry", row.position);
            row.position.state = State::Failed;
            row.position.version += 1;
            row.completed_at = Some(now);
            row.hold = None;
            row.trail = grown(&row.trail, &after.trail, &[(row.position.version, State::Failed)]);
            return;
        }
        let found = answer.unwrap_or_else(|| panic!("{:?} was not started at {version}", row.position));
        let hold = found.hold.clone().expect("a running task is held");
        let until = now.plus_millis(i64::try_from(row.body.timeout_millis + GRACE_MILLIS).expect("a short time"));
        assert_eq!((hold.since, hold.expires_at, hold.worker.as_str()), (now, until, WORKER));
        row.position.state = State::Running;
        row.position.version += 1;
        (row.worker, row.started_at, row.hold) = (Some(WORKER.into()), Some(now), Some(hold));
        row.trail = grown(&row.trail, &found.trail, &[(row.position.version, State::Running)]);
        assert_same_row(&found, row);
    }

    /// Checks the answer to one change of an `apply`. `lane` is the task's lane now, as the store
    /// returns it.
    pub(super) fn apply(&mut self, id: TaskId, change: &Change, answer: &Applied) {
        let row = self.rows.get_mut(&id).expect("the model has it");
        let fits = (row.position.state, row.position.version) == (change.from, change.expected_version)
            && change.tenant.as_deref().is_none_or(|tenant| tenant == row.tenant());
        assert_eq!(
            is_done(answer),
            fits,
            "{:?} and the change from {:?} {}",
            row.position,
            change.from,
            change.expected_version
        );
        let Applied::Done(place) = answer else { return };
        row.position = after(&row.position, change);
        row.due_at = change.due_at.unwrap_or(row.due_at);
        if !change.cancel_requested {
            row.hold.clone_from(&change.hold);
        }
        row.completed_at = change.to.is_final().then_some(change.at);
        if change.result.is_some() {
            row.result.clone_from(&change.result);
        }
        row.trail.extend(&change.trail);
        if let Some(edit) = &change.edit {
            edited(row, edit, place.as_ref().map(|(lane, _)| lane));
        }
        let expected = (row.state() == State::Pending).then(|| (row.lane.clone(), row.due_at));
        assert_eq!(*place, expected, "where a task waits after {:?}", change.trail.last());
    }

    /// Checks the answer of `extend`.
    pub(super) fn extend(&mut self, beat: &punctual_core::store::Beat, answer: Option<&Hold>, now: Timestamp) {
        let row = self.rows.get_mut(&beat.id).expect("the model has it");
        let position = row.position;
        let lasts = row.hold.as_ref().is_some_and(|hold| now < hold.expires_at);
        let holds = position.state == State::Running && position.version == beat.token && !position.cancel_requested;
        assert_eq!(answer.is_some(), holds && lasts, "{position:?}, {:?} and the token {}", row.hold, beat.token);
        let (Some(answer), Some(hold)) = (answer, row.hold.as_mut()) else { return };
        let lease = i64::try_from(hold.lease_millis).expect("a short time");
        hold.expires_at = now.plus_millis(lease).min(hold.deadline_at).max(hold.expires_at);
        if beat.detach {
            let timeout = i64::try_from(row.body.timeout_millis).expect("a short time");
            hold.node = None;
            hold.deadline_at = hold.since.plus_millis(timeout).min(hold.deadline_at);
            hold.expires_at = hold.deadline_at;
        }
        assert_eq!(answer, hold);
        row.progress = beat.progress.clone().or(row.progress.take());
        row.checkpoint = beat.checkpoint.clone().or(row.checkpoint.take());
    }

    /// Whether `overdue` must return this task; none if the instant is exactly the expiry.
    pub(super) fn is_overdue(&self, id: TaskId, now: Timestamp) -> Option<bool> {
        let row = &self.rows[&id];
        let until = match row.state() {
            State::Blocked | State::Pending => row.expires_at,
            State::Queued | State::Running => row.hold.as_ref().map(|hold| hold.expires_at),
            _ => None,
        };
        match until {
            Some(until) if until == now => None,
            until => Some(until.is_some_and(|until| until < now)),
        }
    }
}

fn edited(row: &mut Task, edit: &Edit, lane: Option<&std::sync::Arc<punctual_core::lane::Lane>>) {
    let Edit { execute_at, payload, priority, retry_policy, expires_at, metadata, .. } = edit.clone();
    row.execute_at = execute_at.unwrap_or(row.execute_at);
    row.expires_at = expires_at.unwrap_or(row.expires_at);
    row.body.payload = payload.unwrap_or_else(|| row.body.payload.clone());
    if let Some(policy) = retry_policy {
        row.body.retry_policy = policy;
    }
    row.body.metadata = metadata.unwrap_or_else(|| row.body.metadata.clone());
    if let (Some(priority), Some(lane)) = (priority, lane) {
        let mut key = row.lane.key.clone();
        key.priority = priority;
        assert_eq!(lane.key, key, "the lane of an edited task");
        assert_eq!(lane.id == row.lane.id, row.lane.key == key, "a lane has one number");
        row.lane = lane.clone();
    }
}

/// The trail of the store. Asserts that it is the earlier one with exactly these further steps.
fn grown(before: &Trail, found: &Trail, steps: &[(u64, State)]) -> Trail {
    assert!(found.as_bytes().starts_with(before.as_bytes()), "the trail lost its beginning");
    let added: Vec<_> = found.entries().skip(before.entries().count()).map(|entry| (entry.version, entry.to)).collect();
    assert_eq!(added, steps, "the steps of the trail");
    found.clone()
}

/// Compares two reads of a row; the due instant of a final task means nothing.
pub(super) fn assert_same_row(found: &Task, row: &Task) {
    let due_at = if row.state().is_final() { row.due_at } else { found.due_at };
    assert_same(&Task { due_at, ..found.clone() }, row);
}
