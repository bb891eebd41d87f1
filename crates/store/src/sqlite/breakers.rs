//! Breakers and the counts they are judged by.

use async_trait::async_trait;
use punctual_core::breakers::{BreakerChange, BreakerEvent, Breakers, Counted, FailedProbe, Key, OpenBreaker, Runs};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use rusqlite::{OptionalExtension, Row};

use crate::columns::{node_column, number_column};

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use crate::write_queue::Weight;

#[async_trait]
impl Breakers for SqliteStore {
    async fn record_counts(&self, node: NodeId, counts: Vec<Counted>) -> Result<(), StoreError> {
        let weight = Weight { rows: counts.len(), bytes: counts.len() * Weight::SMALL.bytes };
        let work = move |session: &mut Session<'_>| record_counts(session, node, &counts);
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn counts_since(&self, since: Timestamp) -> Result<Vec<(Key, Runs)>, StoreError> {
        self.readers().call(move |session| counts_since(session, since)).await
    }

    async fn open_breaker(&self, breaker: OpenBreaker) -> Result<bool, StoreError> {
        self.writer().call(WriteClass::Progress, Weight::SMALL, move |session| open(session, &breaker)).await
    }

    async fn list_breakers(&self, after: Option<Key>, limit: usize) -> Result<Vec<OpenBreaker>, StoreError> {
        self.readers().call(move |session| list(session, after.as_ref(), limit)).await
    }

    async fn breaker_over(&self, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, StoreError> {
        let (tenant, target) = (tenant.to_owned(), target.to_owned());
        self.readers().call(move |session| over(session, &tenant, &target)).await
    }

    async fn change_breaker(&self, key: &Key, event: BreakerEvent) -> Result<BreakerChange, StoreError> {
        let key = key.clone();
        let class = if event == BreakerEvent::Reset { WriteClass::Urgent } else { WriteClass::Progress };
        self.writer().call(class, Weight::SMALL, move |session| change(session, &key, &event)).await
    }
}

/// What a node has counted.
fn record_counts(session: &mut Session<'_>, node: NodeId, counts: &[Counted]) -> Result<(), Fault> {
    let put = session.statements.get(Sql::BreakerCountsPut)?;
    for Counted { key, slot_at, runs } in counts {
        let (ok, failed) = (number_column(runs.ok), number_column(runs.failed));
        put.execute((&key.tenant, &key.target, slot_at.as_millis(), node_column(node), ok, failed))?;
    }
    Ok(())
}

/// The runs of every key without an open breaker.
fn counts_since(session: &mut Session<'_>, since: Timestamp) -> Result<Vec<(Key, Runs)>, Fault> {
    let query = session.statements.get(Sql::BreakerCountsSum)?;
    let rows = query.query_map([since.as_millis()], |row| {
        let runs = Runs { ok: number(row.get(2)?), failed: number(row.get(3)?) };
        Ok((Key { tenant: row.get(0)?, target: row.get(1)? }, runs))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Opens a breaker; whether it was closed.
fn open(session: &mut Session<'_>, breaker: &OpenBreaker) -> Result<bool, Fault> {
    let opened = session.statements.get(Sql::BreakerOpen)?.execute((
        &breaker.key.tenant,
        &breaker.key.target,
        breaker.opened_at.as_millis(),
        breaker.next_probe_at.as_millis(),
        number_column(breaker.runs.ok),
        number_column(breaker.runs.failed),
        &breaker.reason,
    ))?;
    Ok(opened > 0)
}

/// The open breakers behind a key.
fn list(session: &mut Session<'_>, after: Option<&Key>, limit: usize) -> Result<Vec<OpenBreaker>, Fault> {
    let (tenant, target) = after.map_or(("", ""), |key| (&key.tenant, &key.target));
    let query = session.statements.get(Sql::BreakerList)?;
    let rows = query.query_map((tenant, target, i64::try_from(limit).unwrap_or(i64::MAX)), breaker)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The open breaker over a target.
fn over(session: &mut Session<'_>, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, Fault> {
    let own = get(session, tenant, target)?;
    if own.is_some() { Ok(own) } else { get(session, tenant, "") }
}

fn get(session: &mut Session<'_>, tenant: &str, target: &str) -> Result<Option<OpenBreaker>, Fault> {
    Ok(session.statements.get(Sql::BreakerGet)?.query_row((tenant, target), breaker).optional()?)
}

/// Changes a breaker by an event; only the writer changes breakers, so that nothing comes in
/// between.
fn change(session: &mut Session<'_>, key: &Key, event: &BreakerEvent) -> Result<BreakerChange, Fault> {
    let Some(mut breaker) = get(session, &key.tenant, &key.target)? else { return Ok(BreakerChange::NotOpen) };
    let change = breaker.change(event);
    match change {
        BreakerChange::Changed => {
            let (failed_at, error) = breaker.last_probe.map(|failed| (failed.at.as_millis(), failed.error)).unzip();
            session.statements.get(Sql::BreakerChange)?.execute((
                &key.tenant,
                &key.target,
                breaker.next_probe_at.as_millis(),
                breaker.half_open,
                breaker.probe.map(|task| *task.uuid().as_bytes()),
                tasks_column(&breaker.overtaken),
                failed_at,
                error,
            ))?;
        }
        BreakerChange::Closed => {
            session.statements.get(Sql::BreakerClose)?.execute((&key.tenant, &key.target))?;
            session.statements.get(Sql::BreakerCountsForget)?.execute((&key.tenant, &key.target))?;
        }
        BreakerChange::NotOpen | BreakerChange::Kept => {}
    }
    Ok(change)
}

fn breaker(row: &Row<'_>) -> rusqlite::Result<OpenBreaker> {
    let probe: Option<[u8; 16]> = row.get(8)?;
    let (overtaken, _) = row.get_ref(9)?.as_blob()?.as_chunks();
    let (failed_at, error): (Option<i64>, Option<String>) = (row.get(10)?, row.get(11)?);
    Ok(OpenBreaker {
        key: Key { tenant: row.get(0)?, target: row.get(1)? },
        opened_at: Timestamp::from_millis(row.get(2)?),
        next_probe_at: Timestamp::from_millis(row.get(3)?),
        runs: Runs { ok: number(row.get(4)?), failed: number(row.get(5)?) },
        reason: row.get(6)?,
        half_open: row.get(7)?,
        probe: probe.map(task),
        overtaken: overtaken.iter().copied().map(task).collect(),
        last_probe: failed_at
            .map(|at| FailedProbe { at: Timestamp::from_millis(at), error: error.unwrap_or_default() }),
    })
}

fn task(bytes: [u8; 16]) -> TaskId {
    TaskId::from_uuid(uuid::Uuid::from_bytes(bytes))
}

fn tasks_column(tasks: &[TaskId]) -> Vec<u8> {
    tasks.iter().flat_map(|task| *task.uuid().as_bytes()).collect()
}

fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}
