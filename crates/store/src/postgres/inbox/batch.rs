//! Rows of the inbox that become tasks in one transaction.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use tracing::warn;
use uuid::Uuid;

use super::super::cluster::Listener;
use super::super::connection::SharedConnections;
use super::super::fault::Fault;
use super::super::insert::dependents;
use super::super::insert::{NewRows, RecognisedBatch, count, submitted_before};
use super::super::lanes::KEEP_LANES;
use super::super::statements::Sql;
use super::super::writer::{TransactionEnd, Writer};
use super::{EnqueuedTask, InboxValidator};
use crate::columns::count_column;
use crate::submissions::{InsertMode, SubmissionVerdict};

/// The maximum number of rows in one transaction …
pub(super) const BATCH_ROWS_MAX: usize = 500;
/// … and about how many bytes they have.
const BATCH_BYTES_MAX: i64 = 16 << 20;

/// Rows of the inbox to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InboxRows<'a> {
    /// The rows of a transaction.
    Transaction(i64),
    /// The oldest rows.
    Front,
    /// The rows with these ids.
    These(&'a [Uuid]),
}

/// How much of the wanted rows was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenPart {
    /// Nothing: there are none, or another node has locked them.
    Nothing,
    /// All of it.
    All,
    /// As many as fit into one transaction.
    Some,
}

/// Turns rows into tasks.
pub(super) struct Batches<'a> {
    pub writer: Writer,
    /// For making lanes, outside of the transaction that needs them: the lane cache holds only
    /// committed lanes.
    pub connections: Arc<SharedConnections>,
    /// Notifies the dispatcher of this process.
    pub listener: Arc<Listener>,
    pub validate: &'a InboxValidator,
    /// Rows to take before others that depend on them.
    pub parents: Vec<Uuid>,
}

impl Batches<'_> {
    /// Takes some rows, and before them those that they depend on. Fails if no rows can be taken at
    /// present.
    pub(super) async fn take(&mut self, which: InboxRows<'_>) -> Result<TakenPart, Fault> {
        let found = self.take_batch(which).await?;
        if self.parents.is_empty() {
            return Ok(found);
        }
        // Each step leads to rows that were enqueued earlier, so this ends.
        while !self.parents.is_empty() {
            let parents = std::mem::take(&mut self.parents);
            if self.take_batch(InboxRows::These(&parents)).await? == TakenPart::Nothing {
                // Another node is at them. A later scan finds what depends on them.
                return Ok(TakenPart::All);
            }
        }
        Ok(TakenPart::Some)
    }

    /// Takes some rows. Those that depend on other rows stay, and those others are noted.
    async fn take_batch(&mut self, which: InboxRows<'_>) -> Result<TakenPart, Fault> {
        let mut ids = Vec::new();
        let fault = match Box::pin(self.attempt(which, &mut ids)).await {
            Ok(found) => return Ok(found),
            Err(fault) => fault,
        };
        self.undo(fault).await?;
        // PostgreSQL refused one of them: each is tried alone.
        for id in &ids {
            let alone = [*id];
            let attempt = Box::pin(self.attempt(InboxRows::These(&alone), &mut Vec::new())).await;
            let Err(fault) = attempt else { continue };
            let reason = self.undo(fault).await?;
            self.settle(&[(*id, Some(reason))]).await?;
        }
        Ok(TakenPart::Some)
    }

    /// Rolls back. Returns the reason if the rows caused the fault; fails otherwise.
    async fn undo(&mut self, fault: Fault) -> Result<String, Fault> {
        self.writer.forget();
        if fault.breaks_connection() {
            return Err(fault);
        }
        self.writer.session.run("ROLLBACK").await?;
        if is_of_the_rows(&fault) { Ok(fault.to_store_error().to_string()) } else { Err(fault) }
    }

    async fn attempt(&mut self, which: InboxRows<'_>, ids: &mut Vec<Uuid>) -> Result<TakenPart, Fault> {
        let (session, most) = (&self.writer.session, count_column(BATCH_ROWS_MAX));
        let rows = match which {
            InboxRows::Transaction(number) => {
                session.begin(Sql::InboxOfTransaction, &[&number, &most, &BATCH_BYTES_MAX]).await?
            }
            InboxRows::Front => session.begin(Sql::InboxFront, &[&most, &BATCH_BYTES_MAX]).await?,
            InboxRows::These(ids) => session.begin(Sql::InboxThese, &[&ids, &BATCH_BYTES_MAX]).await?,
        };
        let found = found(&rows);
        let rows = self.without_early_rows(rows).await?;
        if rows.is_empty() {
            self.writer.session.run("ROLLBACK").await?;
            return Ok(found);
        }
        ids.extend(rows.iter().map(|row| row.get::<_, Uuid>(0)));
        let (mut tasks, mut settled) = self.validate(&rows);
        let lanes = self.lanes(&mut tasks, &mut settled).await?;
        self.writer.session.run(KEEP_LANES).await?;
        let recognised = self.recognise(&tasks).await?;
        if tasks.iter().any(|task| !task.body.dependencies.ids.is_empty()) {
            let (writer, none) = (&mut self.writer, HashSet::new());
            let depending = dependents::write(writer, &tasks, &lanes, recognised, &none, InsertMode::Each);
            let depending = Box::pin(depending).await;
            let depending = depending.map_err(|fault| self.writer.shared.lanes.fault_of(fault, &lanes))?;
            let new = new_ones(&tasks, &depending.verdicts, &mut settled);
            self.settle(&settled).await?;
            self.writer.commit().await?;
            log_refused(&settled);
            self.wake(new.iter().map(|place| (&lanes[*place], tasks[*place].due_at)));
            self.writer.shared.cursors.put(depending.passed.iter().copied());
            self.writer.shared.notifier.note_waiting(&depending.passed, self.writer.now());
            return Ok(found);
        }
        let new = new_ones(&tasks, &recognised.verdicts, &mut settled);
        count(&mut self.writer, &tasks, &lanes, &new, &[]);
        let (end, session) = (TransactionEnd::of(&mut self.writer), &self.writer.session);
        let columns = NewRows::of(&tasks, &lanes, &new, &[]);
        // Everything is sent at once; the answers are checked in the order in which they come.
        let (written, removed, committed) = tokio::join!(biased;
            columns.write(session, Sql::TaskInsert),
            self.settle(&settled),
            end.commit(session),
        );
        written.map_err(|fault| self.writer.shared.lanes.fault_of(fault, &lanes))?;
        removed?;
        self.writer.shared.outbox.wake_resolver(committed?);
        log_refused(&settled);
        self.wake(new.iter().map(|place| (&lanes[*place], tasks[*place].due_at)));
        Ok(found)
    }

    /// Leaves out the rows that depend on others which are in the inbox and not among them, and
    /// notes those others.
    async fn without_early_rows(&mut self, mut rows: Vec<Row>) -> Result<Vec<Row>, Fault> {
        let taken: HashSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let named: HashSet<Uuid> = rows.iter().flat_map(parents).filter(|parent| !taken.contains(parent)).collect();
        if named.is_empty() {
            return Ok(rows);
        }
        let named: Vec<Uuid> = named.into_iter().collect();
        let waiting = self.writer.session.query(Sql::InboxAmong, &[&named]).await?;
        let mut absent: HashSet<Uuid> = waiting.iter().map(|row| row.get(0)).collect();
        self.parents = absent.iter().copied().take(BATCH_ROWS_MAX).collect();
        // Until no row depends on one that was left out.
        let mut before = usize::MAX;
        while std::mem::replace(&mut before, rows.len()) != rows.len() {
            rows.retain(|row| {
                let is_early = parents(row).iter().any(|parent| absent.contains(parent));
                !(is_early && absent.insert(row.get(0)))
            });
        }
        Ok(rows)
    }

    /// The tasks of the rows, and the ids of all rows, with a reason where there is no task.
    fn validate(&self, rows: &[Row]) -> (Vec<NewTask>, Vec<(Uuid, Option<String>)>) {
        let (mut tasks, mut settled) = (Vec::new(), Vec::new());
        for row in rows {
            let enqueued = EnqueuedTask {
                id: TaskId::from_uuid(row.get(0)),
                tenant: row.get(1),
                created_at: Timestamp::from_millis(row.get(2)),
                submission: row.get(3),
            };
            // A row that makes the validator panic would do so on every node, again and again.
            let validated = catch_unwind(AssertUnwindSafe(|| (self.validate)(&enqueued)));
            let validated =
                validated.unwrap_or_else(|_| Err("it could not be validated; the log says more".to_owned()));
            settled.push((enqueued.id.uuid(), validated.map(|task| tasks.push(task)).err()));
        }
        (tasks, settled)
    }

    /// The lanes of the tasks. A task that needs a lane beyond those that its tenant may have is
    /// taken out, and its row gets the reason.
    async fn lanes(
        &self,
        tasks: &mut Vec<NewTask>,
        settled: &mut [(Uuid, Option<String>)],
    ) -> Result<Vec<Arc<Lane>>, Fault> {
        let (lanes, most) = (&self.writer.shared.lanes, self.writer.shared.tenant_lanes);
        let keys = tasks.iter().map(|task| &task.lane);
        let found = self.connections.call(async |session| lanes.admit(session, keys, most).await).await;
        let found = found.map_err(Fault::NoConnection)?;
        let of_tasks: Vec<Option<Arc<Lane>>> = tasks.iter().map(|task| found.get(&task.lane).cloned()).collect();
        drop(found);
        let mut refused = HashSet::new();
        let mut has_lane = of_tasks.iter().map(Option::is_some);
        tasks.retain(|task| has_lane.next().unwrap_or(false) || !refused.insert(task.id.uuid()));
        for (_, reason) in settled.iter_mut().filter(|(id, _)| refused.contains(id)) {
            *reason = Some(too_many_lanes(most));
        }
        Ok(of_tasks.into_iter().flatten().collect())
    }

    async fn recognise(&self, tasks: &[NewTask]) -> Result<RecognisedBatch, Fault> {
        if tasks.iter().all(|task| task.idempotency.is_none()) {
            return Ok(RecognisedBatch::all_new(tasks.len()));
        }
        submitted_before(&self.writer.session, tasks).await
    }

    /// Removes rows from the inbox; those with a reason move to `inbox_refused`.
    async fn settle(&self, settled: &[(Uuid, Option<String>)]) -> Result<(), Fault> {
        let (ids, reasons): (Vec<Uuid>, Vec<Option<&str>>) =
            settled.iter().map(|(id, reason)| (*id, reason.as_deref())).unzip();
        let now = self.writer.now().as_millis();
        self.writer.session.execute(Sql::InboxSettle, &[&ids, &reasons, &now]).await.map(drop)
    }

    /// Notifies this process and the others of waiting tasks.
    fn wake<'l>(&self, new: impl Iterator<Item = (&'l Arc<Lane>, Timestamp)>) {
        let mut first: HashMap<i64, (&Arc<Lane>, Timestamp)> = HashMap::new();
        for (lane, due_at) in new {
            let known = first.entry(lane.id.number()).or_insert((lane, due_at));
            known.1 = known.1.min(due_at);
        }
        let waiting: Vec<(i64, i64)> = first.iter().map(|(lane, (_, due_at))| (*lane, due_at.as_millis())).collect();
        let shared = &self.writer.shared;
        shared.cursors.put(waiting.iter().copied());
        shared.notifier.note_waiting(&waiting, self.writer.now());
        for (lane, due_at) in first.into_values() {
            self.listener.notify_local(lane, due_at);
        }
    }
}

/// The indices of the new tasks; the others get the reason of their refusal.
fn new_ones(tasks: &[NewTask], verdicts: &[SubmissionVerdict], settled: &mut [(Uuid, Option<String>)]) -> Vec<usize> {
    let mut reasons: HashMap<Uuid, String> = HashMap::new();
    let mut new = Vec::new();
    for (place, verdict) in verdicts.iter().enumerate() {
        let reason = match verdict {
            SubmissionVerdict::New => {
                new.push(place);
                continue;
            }
            SubmissionVerdict::Replay(first) => {
                format!("its idempotency key was used meanwhile for the same submission, {first}")
            }
            SubmissionVerdict::KeyReused(first) => {
                format!("its idempotency key was used meanwhile for another submission, {first}")
            }
            SubmissionVerdict::UnknownDependency(missing) => {
                format!("it depends on {missing}, and there is no such task")
            }
            SubmissionVerdict::QueueFull(queue) => format!("its queue {} is full", queue.name),
            SubmissionVerdict::TooManyLanes(most) => too_many_lanes(*most),
            SubmissionVerdict::Withheld => "another submission of its call was refused".to_owned(),
        };
        reasons.insert(tasks[place].id.uuid(), reason);
    }
    for (id, reason) in settled {
        *reason = reasons.remove(id).or(reason.take());
    }
    new
}

fn too_many_lanes(most: u64) -> String {
    format!("its tenant has as many lanes as it may have, {most} (limits.tenant_lanes)")
}

fn found(rows: &[Row]) -> TakenPart {
    let bytes: i64 = rows.iter().map(|row| i64::from(row.get::<_, i32>(4))).sum();
    if rows.is_empty() {
        TakenPart::Nothing
    } else if rows.len() >= BATCH_ROWS_MAX || bytes >= BATCH_BYTES_MAX {
        TakenPart::Some
    } else {
        TakenPart::All
    }
}

/// The tasks that a row depends on.
fn parents(row: &Row) -> Vec<Uuid> {
    row.get::<_, Option<Vec<Uuid>>>(5).unwrap_or_default()
}

/// Whether the content of a row caused the fault, so that a retry fails too: a value that does not
/// fit, or exists already.
fn is_of_the_rows(fault: &Fault) -> bool {
    fault.code().is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.code().starts_with(class)))
}

fn log_refused(settled: &[(Uuid, Option<String>)]) {
    let mut refused = settled.iter().filter_map(|(id, reason)| Some((TaskId::from_uuid(*id), reason.as_ref()?)));
    if let Some((task, reason)) = refused.next() {
        let others = refused.count();
        warn!(task.id = %task, %reason, others, "a submission by SQL is refused; see punctual.inbox_refused");
    }
}
