//! What will be due in which minute: the counts that every transaction keeps (see
//! `forecast_tally.rs`), and the schedules that will fire.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::forecast::Minute;
use punctual_core::lane::Lane;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Pruned;
use rusqlite::Row;
use uuid::Uuid;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use crate::schedule_columns::UpcomingColumns;
use crate::write_queue::Weight;

impl SqliteStore {
    /// Removes some minutes that are past. A reader looks first: mostly there are none, or few.
    pub(super) async fn prune_minutes(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let minute = Minute::of(now).number();
        let look = move |session: &mut Session<'_>| Ok(session.statements.get(Sql::ForecastPast)?.exists([minute])?);
        if !self.readers().call(look).await? {
            return Ok(Pruned::default());
        }
        let work = move |session: &mut Session<'_>| {
            let removed = session.statements.get(Sql::ForecastPrune)?.execute((minute, column(limit)))?;
            Ok(Pruned { removed: removed as u64, more: removed >= limit })
        };
        self.writer().call(WriteClass::Progress, Weight { rows: limit, ..Weight::SMALL }, work).await
    }
}

/// Writes how the transaction changed what will be due.
pub(super) fn write(session: &mut Session<'_>) -> Result<(), Fault> {
    let mut changed: Vec<(Arc<Lane>, Minute, i64)> = Vec::new();
    for (lane, minute, tasks) in session.tally.forecast.take() {
        if let Some(lane) = session.lanes.get(session.connection, lane)? {
            changed.push((lane, minute, tasks));
        }
    }
    let mut of_tenants: BTreeMap<(&str, Minute), i64> = BTreeMap::new();
    for (lane, minute, tasks) in &changed {
        *of_tenants.entry((&lane.key.tenant, *minute)).or_default() += tasks;
    }
    for ((tenant, minute), tasks) in of_tenants {
        session.statements.get(Sql::ForecastAdd)?.execute((tenant, minute.number(), tasks))?;
    }
    Ok(())
}

pub(super) fn upcoming_columns(row: &Row<'_>) -> rusqlite::Result<UpcomingColumns> {
    Ok(UpcomingColumns {
        id: Uuid::from_bytes(row.get(0)?),
        name: row.get(1)?,
        next_run_at: row.get(2)?,
        run_count: row.get(3)?,
        definition: row.get(4)?,
        reserved: row.get(5)?,
    })
}

pub(super) fn column(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
