//! What turns of schedules write, in one transaction: the records, the tasks, and where the schedules stand then.
//!
//! The schedules are locked first, those that are still at the revision their turns were decided by; of the others nothing
//! is written. A record that cannot be written, since its instant has fired, takes its task along.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::coordinator::Lease;
use punctual_core::lane::Lane;
use punctual_core::schedules::{Record, Replaced, Turn, Turned};
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;
use uuid::Uuid;

use super::replace;
use crate::columns::{instant_column, number_column};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;
use crate::postgres::writer::Writer;
use crate::postgres::{insert, leases};
use crate::schedule_columns::{RecordColumns, SwitchColumns};

/// An instant of a schedule.
type Key = (Uuid, i64);

/// A call to write turns, for the holder of a lease if there is one.
pub(crate) struct LedTurns {
    pub lease: Option<Lease>,
    pub turns: Vec<Turn>,
}

/// Writes the turns of one call, each by itself; none if somebody else has held the lease since.
pub(crate) async fn turn(writer: &mut Writer, calls: &[LedTurns]) -> Result<Vec<Option<Vec<Turned>>>, Fault> {
    let [LedTurns { lease, turns }] = calls else { return Ok(Vec::new()) };
    // What is known of lanes must be committed: they are made outside of the transaction.
    let lanes = writer.shared.lanes.resolve(&writer.session, tasks_of(turns).map(|(_, task)| &task.lane)).await?;
    match lease {
        Some(lease) => {
            if !leases::begin_as(&writer.session, lease).await? {
                writer.session.run("ROLLBACK").await?;
                return Ok(vec![None]);
            }
        }
        None => writer.session.run("BEGIN").await?,
    }
    let mut locked = lock(&writer.session, turns).await?;
    take_keys(&writer.session, turns, &mut locked).await?;
    if let Some(refused) = edit(&writer.session, turns, &locked).await? {
        writer.session.run("ROLLBACK").await?;
        return Ok(vec![Some(turns.iter().map(|_| refused.clone()).collect())]);
    }
    let good: Vec<&Turn> = turns.iter().filter(|turn| locked.contains(&turn.id.uuid())).collect();
    let recorded = record(&writer.session, &good).await?;
    give_keys_back(&writer.session, &good, &recorded).await?;
    rest(&writer.session, &good).await?;
    let of_good = good.iter().flat_map(|turn| tasks_of_one(turn));
    let made: Vec<(Key, &NewTask)> = of_good.filter(|(key, _)| recorded.contains(key)).collect();
    let tasks: Vec<NewTask> = made.iter().map(|(_, task)| (*task).clone()).collect();
    let lanes: Vec<Arc<Lane>> = tasks.iter().map(|task| Arc::clone(&lanes[&task.lane])).collect();
    insert::write_new(writer, &tasks, &lanes).await?;
    advance(&writer.session, &good, &recorded).await?;
    writer.commit().await?;
    insert::tell_of_new(writer, &tasks, &lanes);
    let mut waiting: HashMap<Uuid, Vec<(Arc<Lane>, Timestamp)>> = HashMap::new();
    for ((((schedule, _), _), task), lane) in made.iter().zip(&tasks).zip(&lanes) {
        waiting.entry(*schedule).or_default().push((Arc::clone(lane), task.due_at));
    }
    let answer = |turn: &Turn| {
        let id = turn.id.uuid();
        if !locked.contains(&id) {
            return Turned::Lost;
        }
        let instants = turn.records.iter().map(|record| record.instant);
        let recorded = instants.filter(|instant| recorded.contains(&(id, instant.as_millis()))).collect();
        Turned::Done { waiting: waiting.remove(&id).unwrap_or_default(), recorded }
    };
    Ok(vec![Some(turns.iter().map(answer).collect())])
}

fn tasks_of(turns: &[Turn]) -> impl Iterator<Item = (Key, &NewTask)> {
    turns.iter().flat_map(tasks_of_one)
}

/// The tasks of a turn, by the instants they are made for.
fn tasks_of_one(turn: &Turn) -> impl Iterator<Item = (Key, &NewTask)> {
    turn.records.iter().filter_map(|record| {
        let (task, _) = record.outcome.task()?;
        Some(((turn.id.uuid(), record.instant.as_millis()), task))
    })
}

/// Locks the schedules that are still at the revision of their turns.
async fn lock(session: &Session, turns: &[Turn]) -> Result<HashSet<Uuid>, Fault> {
    let ids: Vec<Uuid> = turns.iter().map(|turn| turn.id.uuid()).collect();
    let revisions: Vec<i64> = turns.iter().map(|turn| number_column(turn.revision)).collect();
    let rows = session.query(Sql::ScheduleLock, &[&ids, &revisions]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Makes the keys stand for what is asked for under them. A turn whose key stands for something else is lost.
async fn take_keys(session: &Session, turns: &[Turn], locked: &mut HashSet<Uuid>) -> Result<(), Fault> {
    for turn in turns {
        let Some(asked) = turn.asked.as_ref().filter(|_| locked.contains(&turn.id.uuid())) else { continue };
        let (tenant, key, task) = (vec![&asked.tenant], vec![&asked.idempotency.key], vec![asked.task.uuid()]);
        let (fingerprint, now) = (vec![&asked.idempotency.fingerprint[..]], vec![turn.now.as_millis()]);
        let made = session.query(Sql::IdempotencyInsert, &[&tenant, &key, &task, &fingerprint, &now]).await?;
        if made.is_empty() {
            locked.remove(&turn.id.uuid());
        }
    }
    Ok(())
}

/// Frees the keys of runs that are not recorded after all.
async fn give_keys_back(session: &Session, turns: &[&Turn], recorded: &HashSet<Key>) -> Result<(), Fault> {
    for (turn, asked) in turns.iter().filter_map(|turn| Some((turn, turn.asked.as_ref()?))) {
        if !recorded.contains(&(turn.id.uuid(), asked.instant.as_millis())) {
            let (tenant, key, task) = (vec![&asked.tenant], vec![&asked.idempotency.key], vec![asked.task.uuid()]);
            session.execute(Sql::IdempotencyDrop, &[&tenant, &key, &task]).await?;
        }
    }
    Ok(())
}

/// Writes the edits of schedules that are locked; gives what becomes of everything if one cannot be written.
async fn edit(session: &Session, turns: &[Turn], locked: &HashSet<Uuid>) -> Result<Option<Turned>, Fault> {
    let edited = turns.iter().filter_map(|turn| turn.edited.as_ref().filter(|_| locked.contains(&turn.id.uuid())));
    for schedule in edited {
        match replace(session, schedule).await? {
            Replaced::Done => {}
            Replaced::Lost => return Ok(Some(Turned::Lost)),
            Replaced::NameTaken => return Ok(Some(Turned::NameTaken)),
        }
    }
    Ok(None)
}

/// Writes the records; gives those that were written.
async fn record(session: &Session, turns: &[&Turn]) -> Result<HashSet<Key>, Fault> {
    let mut written = HashSet::new();
    for (waited, sql) in [(true, Sql::OccurrenceSettle), (false, Sql::OccurrencePut)] {
        let mut records: Vec<(Uuid, RecordColumns<'_>)> = Vec::new();
        for turn in turns {
            let wanted = turn.records.iter().filter(|record| record.waited == waited);
            records.extend(wanted.map(|record| (turn.id.uuid(), RecordColumns::of(turn, record))));
        }
        if !records.is_empty() {
            written.extend(write_records(session, sql, &records).await?);
        }
    }
    Ok(written)
}

async fn write_records(session: &Session, sql: Sql, records: &[(Uuid, RecordColumns<'_>)]) -> Result<Vec<Key>, Fault> {
    fn each<'a, T>(records: &[(Uuid, RecordColumns<'a>)], column: impl Fn(&RecordColumns<'a>) -> T) -> Vec<T> {
        records.iter().map(|(_, record)| column(record)).collect()
    }
    let schedules: Vec<Uuid> = records.iter().map(|(schedule, _)| *schedule).collect();
    let rows = session
        .query(
            sql,
            &[
                &schedules,
                &each(records, |of| of.instant),
                &each(records, |of| of.decided_at),
                &each(records, |of| of.task_id),
                &each(records, |of| of.covers_until),
                &each(records, |of| of.covers_at_least),
                &each(records, |of| i16::from(of.origin)),
                &each(records, |of| i16::from(of.outcome)),
                &each(records, |of| of.is_watched),
                &each(records, |of| of.reason),
                &each(records, |of| of.detail),
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Those whose tasks have come to rest are not watched any more.
async fn rest(session: &Session, turns: &[&Turn]) -> Result<(), Fault> {
    let rested = turns.iter().flat_map(|turn| turn.rested.iter().map(|at| (turn.id.uuid(), at.as_millis())));
    let (schedules, instants): (Vec<Uuid>, Vec<i64>) = rested.unzip();
    if !schedules.is_empty() {
        session.execute(Sql::OccurrenceRested, &[&schedules, &instants]).await?;
    }
    Ok(())
}

/// Writes where the schedules stand now.
async fn advance(session: &Session, turns: &[&Turn], recorded: &HashSet<Key>) -> Result<(), Fault> {
    if turns.is_empty() {
        return Ok(());
    }
    let fired = |turn: &Turn| -> (i64, Option<i64>) {
        let id = turn.id.uuid();
        let is_written = |record: &&Record| recorded.contains(&(id, record.instant.as_millis()));
        let runs = turn.records.iter().filter(is_written).filter(|record| record.is_run());
        runs.fold((0, None), |(runs, last), record| (runs + 1, last.max(Some(record.instant.as_millis()))))
    };
    let (runs, last): (Vec<i64>, Vec<Option<i64>>) = turns.iter().map(|turn| fired(turn)).unzip();
    let switches: Vec<SwitchColumns<'_>> = turns.iter().map(|turn| SwitchColumns::of(turn)).collect();
    session
        .execute(
            Sql::ScheduleTurn,
            &[
                &turns.iter().map(|turn| turn.id.uuid()).collect::<Vec<_>>(),
                &turns.iter().map(|turn| instant_column(turn.next_run_at)).collect::<Vec<_>>(),
                &turns.iter().map(|turn| instant_column(turn.look_at)).collect::<Vec<_>>(),
                &last,
                &runs,
                &turns.iter().map(|turn| number_column(turn.skipped)).collect::<Vec<_>>(),
                &turns.iter().map(|turn| number_column(turn.missed)).collect::<Vec<_>>(),
                &turns.iter().map(|turn| turn.switch.is_some()).collect::<Vec<_>>(),
                &switches.iter().map(|switch| switch.paused_at).collect::<Vec<_>>(),
                &switches.iter().map(|switch| switch.reason).collect::<Vec<_>>(),
                &turns.iter().map(|turn| turn.now.as_millis()).collect::<Vec<_>>(),
            ],
        )
        .await?;
    Ok(())
}
