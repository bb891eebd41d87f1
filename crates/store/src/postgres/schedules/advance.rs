//! Writes advances of schedules in one transaction: the records, the tasks and the rows of the
//! schedules.
//!
//! It first locks the schedules that are still at the revision their advances were decided by; the
//! other advances are lost. If a record cannot be written, because its instant has fired, its task
//! is not written either.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::coordinator::LeaderLease;
use punctual_core::lane::Lane;
use punctual_core::schedules::{Advance, Advanced, Replaced};
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;
use uuid::Uuid;

use crate::columns::number_column;
use crate::portable::schedules::{cut, replace};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::lanes::KEEP_LANES;
use crate::postgres::statements::Sql;
use crate::postgres::writer::Writer;
use crate::postgres::{insert, leases};
use crate::schedule_columns::{AdvanceColumns, RecordColumns};

/// An instant of a schedule.
type Key = (Uuid, i64);

/// A call to write advances, for the holder of a lease if there is one.
pub(crate) struct LedAdvances {
    pub lease: Option<LeaderLease>,
    pub advances: Vec<Advance>,
}

/// Writes the advances of one call, each by itself; none if another node has held the lease since.
pub(crate) async fn advance(writer: &mut Writer, calls: &[LedAdvances]) -> Result<Vec<Option<Vec<Advanced>>>, Fault> {
    let [LedAdvances { lease, advances }] = calls else { return Ok(Vec::new()) };
    // Lanes are made outside of the transaction: the lane cache holds only committed ones.
    let lanes = writer.shared.lanes.resolve(&writer.session, tasks_of(advances).map(|(_, task)| &task.lane)).await?;
    match lease {
        Some(lease) => {
            if !leases::begin_as(&writer.session, lease).await? {
                writer.session.run("ROLLBACK").await?;
                return Ok(vec![None]);
            }
        }
        None => writer.session.run("BEGIN").await?,
    }
    if !lanes.is_empty() {
        writer.session.run(KEEP_LANES).await?;
    }
    let mut locked = lock(&writer.session, advances).await?;
    take_keys(&writer.session, advances, &mut locked).await?;
    if let Some(refused) = edit(&writer.session, advances, &locked).await? {
        writer.session.run("ROLLBACK").await?;
        return Ok(vec![Some(advances.iter().map(|_| refused.clone()).collect())]);
    }
    let good: Vec<&Advance> = advances.iter().filter(|advance| locked.contains(&advance.id.uuid())).collect();
    for advance in &good {
        cut(&mut &writer.session, advance).await?;
    }
    let recorded = record(&writer.session, &good).await?;
    free_keys(&writer.session, &good, &recorded).await?;
    unwatch(&writer.session, &good).await?;
    let of_good = good.iter().flat_map(|advance| tasks_of_one(advance));
    let made: Vec<(Key, &NewTask)> = of_good.filter(|(key, _)| recorded.contains(key)).collect();
    let tasks: Vec<NewTask> = made.iter().map(|(_, task)| (*task).clone()).collect();
    let lanes: Vec<Arc<Lane>> = tasks.iter().map(|task| Arc::clone(&lanes[&task.lane])).collect();
    insert::write_new(writer, &tasks, &lanes).await?;
    update_schedules(&writer.session, &good, &recorded).await?;
    writer.commit().await?;
    insert::announce_new(writer, &tasks, &lanes);
    let mut waiting: HashMap<Uuid, Vec<(Arc<Lane>, Timestamp)>> = HashMap::new();
    for ((((schedule, _), _), task), lane) in made.iter().zip(&tasks).zip(&lanes) {
        waiting.entry(*schedule).or_default().push((Arc::clone(lane), task.due_at));
    }
    let answer = |advance: &Advance| {
        let id = advance.id.uuid();
        if !locked.contains(&id) {
            return Advanced::Lost;
        }
        let instants = advance.records.iter().map(|record| record.instant);
        let recorded = instants.filter(|instant| recorded.contains(&(id, instant.as_millis()))).collect();
        Advanced::Done { waiting: waiting.remove(&id).unwrap_or_default(), recorded }
    };
    Ok(vec![Some(advances.iter().map(answer).collect())])
}

fn tasks_of(advances: &[Advance]) -> impl Iterator<Item = (Key, &NewTask)> {
    advances.iter().flat_map(tasks_of_one)
}

/// The tasks of an advance, by the instants they are made for.
fn tasks_of_one(advance: &Advance) -> impl Iterator<Item = (Key, &NewTask)> {
    advance.records.iter().filter_map(|record| {
        let task: &NewTask = &record.fired.as_ref()?.task;
        Some(((advance.id.uuid(), record.instant.as_millis()), task))
    })
}

/// Locks the schedules that are still at the revision of their advances.
async fn lock(session: &Session, advances: &[Advance]) -> Result<HashSet<Uuid>, Fault> {
    let ids: Vec<Uuid> = advances.iter().map(|advance| advance.id.uuid()).collect();
    let revisions: Vec<i64> = advances.iter().map(|advance| number_column(advance.revision)).collect();
    let rows = session.query(Sql::ScheduleLock, &[&ids, &revisions]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Takes the idempotency keys of triggers for their tasks. An advance whose key belongs to another
/// task is lost.
async fn take_keys(session: &Session, advances: &[Advance], locked: &mut HashSet<Uuid>) -> Result<(), Fault> {
    for advance in advances {
        let Some(trigger) = advance.trigger.as_ref().filter(|_| locked.contains(&advance.id.uuid())) else { continue };
        let (tenant, key, task) = (vec![&trigger.tenant], vec![&trigger.idempotency.key], vec![trigger.task.uuid()]);
        let (fingerprint, now) = (vec![&trigger.idempotency.fingerprint[..]], vec![advance.now.as_millis()]);
        let made = session.query(Sql::IdempotencyInsert, &[&tenant, &key, &task, &fingerprint, &now]).await?;
        if made.is_empty() {
            locked.remove(&advance.id.uuid());
        }
    }
    Ok(())
}

/// Frees the keys of triggers whose instants were not recorded after all.
async fn free_keys(session: &Session, advances: &[&Advance], recorded: &HashSet<Key>) -> Result<(), Fault> {
    for (advance, trigger) in advances.iter().filter_map(|advance| Some((advance, advance.trigger.as_ref()?))) {
        if !recorded.contains(&(advance.id.uuid(), trigger.instant.as_millis())) {
            let (tenant, key, task) =
                (vec![&trigger.tenant], vec![&trigger.idempotency.key], vec![trigger.task.uuid()]);
            session.execute(Sql::IdempotencyDrop, &[&tenant, &key, &task]).await?;
        }
    }
    Ok(())
}

/// Writes the edits of locked schedules. If one cannot be written, returns the result of every
/// advance.
async fn edit(session: &Session, advances: &[Advance], locked: &HashSet<Uuid>) -> Result<Option<Advanced>, Fault> {
    let edited =
        advances.iter().filter_map(|advance| advance.edited.as_ref().filter(|_| locked.contains(&advance.id.uuid())));
    for schedule in edited {
        match replace(&mut &*session, schedule).await? {
            Replaced::Done => {}
            Replaced::Lost => return Ok(Some(Advanced::Lost)),
            Replaced::NameTaken => return Ok(Some(Advanced::NameTaken)),
        }
    }
    Ok(None)
}

/// Writes the records. Returns the ones that were written.
async fn record(session: &Session, advances: &[&Advance]) -> Result<HashSet<Key>, Fault> {
    let mut written = HashSet::new();
    for (waited, sql) in [(true, Sql::OccurrenceSettle), (false, Sql::OccurrencePut)] {
        let mut records = Vec::new();
        for advance in advances {
            let wanted = advance.records.iter().filter(|record| record.waited == waited);
            records.extend(wanted.map(|record| RecordColumns::of(advance, record)));
        }
        if !records.is_empty() {
            written.extend(write_records(session, sql, &records).await?);
        }
    }
    Ok(written)
}

async fn write_records(session: &Session, sql: Sql, records: &[RecordColumns<'_>]) -> Result<Vec<Key>, Fault> {
    let rows = session
        .query(
            sql,
            &[
                &each(records, |of| of.schedule),
                &each(records, |of| of.instant),
                &each(records, |of| of.decided_at),
                &each(records, |of| of.task_id),
                &each(records, |of| of.covers_until),
                &each(records, |of| of.covers_at_least),
                &each(records, |of| of.origin),
                &each(records, |of| of.outcome),
                &each(records, |of| of.is_watched),
                &each(records, |of| of.reason),
                &each(records, |of| of.detail),
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Stops watching the tasks that have finished.
async fn unwatch(session: &Session, advances: &[&Advance]) -> Result<(), Fault> {
    let finished =
        advances.iter().flat_map(|advance| advance.finished.iter().map(|at| (advance.id.uuid(), at.as_millis())));
    let (schedules, instants): (Vec<Uuid>, Vec<i64>) = finished.unzip();
    if !schedules.is_empty() {
        session.execute(Sql::OccurrenceFinished, &[&schedules, &instants]).await?;
    }
    Ok(())
}

/// Writes the new progress of the schedules.
async fn update_schedules(session: &Session, advances: &[&Advance], recorded: &HashSet<Key>) -> Result<(), Fault> {
    if advances.is_empty() {
        return Ok(());
    }
    let columns = |&advance| {
        AdvanceColumns::of(advance, |record| recorded.contains(&(advance.id.uuid(), record.instant.as_millis())))
    };
    let rows: Vec<AdvanceColumns<'_>> = advances.iter().map(columns).collect();
    session
        .execute(
            Sql::ScheduleAdvance,
            &[
                &each(&rows, |of| of.id),
                &each(&rows, |of| of.next_run_at),
                &each(&rows, |of| of.look_at),
                &each(&rows, |of| of.last_run_at),
                &each(&rows, |of| of.runs),
                &each(&rows, |of| of.skipped),
                &each(&rows, |of| of.missed),
                &each(&rows, |of| of.is_switched),
                &each(&rows, |of| of.paused_at),
                &each(&rows, |of| of.pause_reason),
                &each(&rows, |of| of.decided_at),
            ],
        )
        .await?;
    Ok(())
}

/// One column of all these rows.
fn each<R, T>(rows: &[R], column: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(column).collect()
}
