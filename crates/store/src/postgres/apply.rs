//! Applies changes: each by itself, all in one transaction.
//!
//! A batch is split into rounds that name no task twice, and a round by kind: tasks that finish,
//! stay live, are edited, re-driven or purged. Each part is one statement. Mostly there is only
//! one.

pub(crate) mod change;

use std::collections::{BTreeSet, HashMap, HashSet};

use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::TaskId;
use punctual_core::state::{Change, State};
use punctual_core::store::Applied;
use punctual_core::task::Edit;
use punctual_core::time::Timestamp;
use uuid::Uuid;

use super::fault::Fault;
use super::leases;
use super::statements::Sql;
use super::writer::Writer;
use crate::apply_kind::ApplyKind;
use crate::effects::{Effects, LaneInstant};
use crate::ordering::ordering;
use crate::places::concurrency;
use change::{ChangedRow, RowChange};

/// Applies changes; answers in order.
pub(crate) async fn apply(writer: &mut Writer, changes: &[(TaskId, Change)]) -> Result<Vec<Applied>, Fault> {
    let lanes = edit_targets(writer, changes).await?;
    write(writer, changes, &lanes, false).await
}

/// The changes of a call that holds a lease.
pub(crate) struct LeaderChanges {
    pub lease: LeaderLease,
    pub changes: Vec<(TaskId, Change)>,
}

/// Applies the changes of one call. None: another node has held its lease since.
pub(crate) async fn apply_as(writer: &mut Writer, calls: &[LeaderChanges]) -> Result<Vec<Option<Vec<Applied>>>, Fault> {
    let [LeaderChanges { lease, changes }] = calls else { return Ok(Vec::new()) };
    let lanes = edit_targets(writer, changes).await?;
    if !leases::begin_as(&writer.session, lease).await? {
        writer.session.run("ROLLBACK").await?;
        return Ok(vec![None]);
    }
    Ok(vec![Some(write(writer, changes, &lanes, true).await?)])
}

/// Writes the changes and commits. `has_begun`: the caller has begun the transaction.
async fn write(
    writer: &mut Writer,
    changes: &[(TaskId, Change)],
    lanes: &EditTargets,
    has_begun: bool,
) -> Result<Vec<Applied>, Fault> {
    let steps = steps(changes, &lanes.refused);
    let begin = async |writer: &Writer| if has_begun { Ok(()) } else { writer.session.run("BEGIN").await };
    let into: Vec<i64> = lanes.lanes.values().copied().collect();
    let mut done: Vec<Option<ChangedRow>> = Vec::new();
    done.resize_with(changes.len(), || None);
    let mut stood: HashMap<Uuid, LaneInstant> = HashMap::new();
    if let [step] = steps.as_slice()
        && into.is_empty()
        && !step.moves_waiting_tasks(changes)
    {
        let (begun, written) = tokio::join!(biased; begin(writer), step.write(writer, changes, lanes));
        begun?;
        step.take_in(writer, changes, lanes, written?, &mut stood, &mut done);
    } else if !steps.is_empty() {
        begin(writer).await?;
        if !into.is_empty() {
            writer.shared.lanes.keep(&writer.session, &into).await?;
        }
        stood = lock(writer, changes).await?;
        for step in &steps {
            let written = step.write(writer, changes, lanes).await?;
            step.take_in(writer, changes, lanes, written, &mut stood, &mut done);
        }
    }
    if has_begun || !steps.is_empty() {
        writer.commit().await?;
    }
    answer(writer, changes, done, &lanes.refused, steps.len() > 1, &stood).await
}

/// The changes of one statement: their places in the batch, by task.
struct ApplyStep {
    kind: ApplyKind,
    places: Vec<usize>,
}

/// Splits a batch into statements. The n-th change of a task is in the n-th round.
fn steps(changes: &[(TaskId, Change)], refused: &HashSet<usize>) -> Vec<ApplyStep> {
    let mut seen: HashMap<TaskId, usize> = HashMap::with_capacity(changes.len());
    let mut sorted: Vec<(usize, ApplyKind, TaskId, usize)> = Vec::with_capacity(changes.len());
    for (place, (id, change)) in changes.iter().enumerate() {
        let Some(kind) = ApplyKind::of(change).filter(|_| !refused.contains(&place)) else { continue };
        let round = seen.entry(*id).or_default();
        sorted.push((*round, kind, *id, place));
        *round += 1;
    }
    sorted.sort_unstable();
    let together = sorted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
    together
        .map(|some| ApplyStep { kind: some[0].1, places: some.iter().map(|(.., place)| *place).collect() })
        .collect()
}

impl ApplyStep {
    /// Whether the effects depend on where the tasks were before: they may leave the minute, or the
    /// lane, in which they waited.
    fn moves_waiting_tasks(&self, changes: &[(TaskId, Change)]) -> bool {
        let waits = |place: &usize| changes[*place].1.from == State::Pending;
        self.kind == ApplyKind::Edit || (self.kind == ApplyKind::Change && self.places.iter().any(waits))
    }

    async fn write(
        &self,
        writer: &Writer,
        changes: &[(TaskId, Change)],
        lanes: &EditTargets,
    ) -> Result<Vec<ChangedRow>, Fault> {
        let wanted = |place: &usize| {
            let (id, change) = &changes[*place];
            let ordering = lanes.orderings.get(place).and_then(|(new, _)| *new);
            let concurrency = lanes.concurrencies.get(place).map(|(new, _)| *new);
            RowChange { id: *id, change, lane: lanes.lanes.get(place).copied(), ordering, concurrency }
        };
        let wanted: Vec<RowChange<'_>> = self.places.iter().map(wanted).collect();
        match self.kind {
            ApplyKind::Finish => change::finish(writer, &wanted).await,
            ApplyKind::Change => change::change(&writer.session, &wanted).await,
            ApplyKind::Edit => change::edit(&writer.session, &wanted).await,
            ApplyKind::Redrive => change::redrive(&writer.session, &wanted).await,
            ApplyKind::Purge => change::purge(&writer.session, &wanted).await,
        }
    }

    /// Records the effects of the rows that changed. `stood` has the lane and due instant of each
    /// task before, and is updated.
    fn take_in(
        &self,
        writer: &mut Writer,
        changes: &[(TaskId, Change)],
        targets: &EditTargets,
        written: Vec<ChangedRow>,
        stood: &mut HashMap<Uuid, LaneInstant>,
        done: &mut [Option<ChangedRow>],
    ) {
        let place_of: HashMap<Uuid, usize> =
            self.places.iter().map(|place| (changes[*place].0.uuid(), *place)).collect();
        let now = writer.now();
        for changed in written {
            let Some(place) = place_of.get(&changed.id) else { continue };
            let change = &changes[*place].1;
            let after = changed.at();
            let before = stood.insert(changed.id, after).unwrap_or(after);
            let effects = Effects::of(change, before, after);
            writer.tally.record(&effects, || now);
            writer.notes.record(&effects, &changed.noted());
            if let Some((_, before)) = targets.orderings.get(place) {
                writer.notes.turn(*before);
            }
            if let Some((_, before)) = targets.concurrencies.get(place) {
                writer.notes.places(*before, Some(1));
            }
            if change.revives_dependents {
                writer.notes.revived(changed.id);
            }
            done[*place] = Some(changed);
        }
    }
}

/// Locks the live tasks of a batch that needs several statements, in a fixed order. Returns where
/// they are.
async fn lock(writer: &Writer, changes: &[(TaskId, Change)]) -> Result<HashMap<Uuid, LaneInstant>, Fault> {
    let ids: BTreeSet<Uuid> = changes.iter().map(|(id, _)| id.uuid()).collect();
    let ids: Vec<Uuid> = ids.into_iter().collect();
    let rows = writer.session.query(Sql::TaskLock, &[&ids]).await?;
    Ok(rows.iter().map(|row| (row.get(0), LaneInstant::of_columns(row.get(1), row.get(2)))).collect())
}

/// Where edits move their tasks, by index in the batch.
#[derive(Default)]
struct EditTargets {
    lanes: HashMap<usize, i64>,
    /// The names of new ordering keys, and of those that the tasks had before.
    orderings: HashMap<usize, (Option<Uuid>, Option<Uuid>)>,
    /// The names of the concurrency keys of tasks that go to another queue, there and where they
    /// are.
    concurrencies: HashMap<usize, (Uuid, Uuid)>,
    /// Those that need a lane beyond what their tenant may have.
    refused: HashSet<usize>,
}

/// Finds where edits move their tasks. What else is in the key of a task's lane never changes but
/// by an edit, so the lanes can be made before the transaction: its version is compared there.
async fn edit_targets(writer: &Writer, changes: &[(TaskId, Change)]) -> Result<EditTargets, Fault> {
    let mut targets = EditTargets::default();
    let edits = changes.iter().enumerate().filter_map(|(place, (id, change))| Some((place, id, change.edit.as_ref()?)));
    let moving = |edit: &Edit| edit.priority.is_some() || edit.moves() || edit.ordering_key.is_some();
    let edits: Vec<(usize, &TaskId, &Box<Edit>)> = edits.filter(|(.., edit)| moving(edit)).collect();
    if edits.is_empty() {
        return Ok(targets);
    }
    let ids: Vec<Uuid> = edits.iter().map(|(_, id, _)| id.uuid()).collect();
    let rows = writer.session.query(Sql::TaskLanes, &[&ids]).await?;
    let found: HashMap<Uuid, (i64, Option<&str>)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect();
    let lanes = writer.shared.lanes.get(&writer.session, found.values().map(|(lane, _)| *lane)).await?;
    let (mut keys, mut moved) = (Vec::new(), Vec::new());
    for (place, id, edit) in edits {
        let Some((lane, concurrency_key)) = found.get(&id.uuid()) else { continue };
        let Some(lane) = lanes.get(lane) else { continue };
        if let (Some(queue), Some(key)) = (&edit.queue, concurrency_key) {
            let name = |queue: &str| concurrency(&lane.key.tenant, queue, key);
            targets.concurrencies.insert(place, (name(queue), name(&lane.key.queue)));
        }
        if let Some(key) = &edit.ordering_key {
            let name = |key: &Option<String>| key.as_deref().map(|key| ordering(&lane.key.tenant, key));
            targets.orderings.insert(place, (name(&key.to), name(&key.from)));
        }
        if let Some(key) = edit.lane(&lane.key) {
            if edit.moves() { &mut moved } else { &mut keys }.push((place, key));
        }
    }
    let (shared, session) = (&writer.shared, &writer.session);
    // An edit of the priority is never refused.
    let resolved = shared.lanes.resolve(session, keys.iter().map(|(_, key)| key)).await?;
    targets.lanes.extend(keys.iter().map(|(place, key)| (*place, resolved[key].id.number())));
    let admitted = shared.lanes.admit(session, moved.iter().map(|(_, key)| key), shared.tenant_lanes).await?;
    for (place, key) in &moved {
        match admitted.get(key) {
            Some(lane) => drop(targets.lanes.insert(*place, lane.id.number())),
            None => drop(targets.refused.insert(*place)),
        }
    }
    Ok(targets)
}

/// Answers the changes, and notifies dispatchers of tasks that wait now.
async fn answer(
    writer: &Writer,
    changes: &[(TaskId, Change)],
    done: Vec<Option<ChangedRow>>,
    refused: &HashSet<usize>,
    had_locks: bool,
    stood: &HashMap<Uuid, LaneInstant>,
) -> Result<Vec<Applied>, Fault> {
    let waits = |place: usize| changes[place].1.to == State::Pending;
    let waiting: Vec<(i64, i64)> = done
        .iter()
        .enumerate()
        .filter_map(|(place, changed)| changed.as_ref().filter(|_| waits(place)))
        .map(|changed| (changed.lane, changed.due_at))
        .collect();
    writer.shared.cursors.put(waiting.iter().copied());
    let expiring = done.iter().flatten().filter_map(|changed| changed.expires_at).map(Timestamp::from_millis);
    writer.shared.low_watermarks.wrote(expiring, []);
    if had_locks && done.iter().any(Option::is_none) {
        // A claim may have skipped rows that were locked here and not changed.
        writer.shared.cursors.doubt(stood.values().map(|stood| stood.lane));
    }
    writer.shared.notifier.note_waiting(&waiting, writer.now());
    let lanes = writer.shared.lanes.get(&writer.session, waiting.iter().map(|(lane, _)| *lane)).await?;
    let answer = |(place, changed): (usize, Option<ChangedRow>)| match changed {
        None if refused.contains(&place) => Ok(Applied::TooManyLanes(writer.shared.tenant_lanes)),
        None => Ok(Applied::Lost),
        Some(changed) if waits(place) => {
            let lane = lanes
                .get(&changed.lane)
                .cloned()
                .ok_or_else(|| Fault::Corrupt(format!("lane {} has tasks but does not exist", changed.lane)))?;
            Ok(Applied::Done(Some((lane, Timestamp::from_millis(changed.due_at)))))
        }
        Some(_) => Ok(Applied::Done(None)),
    };
    done.into_iter().enumerate().map(answer).collect()
}
