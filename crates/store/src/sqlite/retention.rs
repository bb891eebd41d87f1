//! Pruning in small steps. A reader finds the old rows, and the writer removes only those.
//!
//! The walks differ from PostgreSQL's because the tables do: the history here is one table, by the
//! number of its tasks, and has no index by time. A task that finished before an instant was
//! submitted before it, so a walk in the order of submission ends where all tasks are younger. Keys
//! are read in their order. A step continues where the last one ended; after a restart a walk
//! begins again.

use async_trait::async_trait;
use punctual_core::forecast::Minute;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Pruned, Resolved, Upkeep};
use rusqlite::OptionalExtension;

use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use super::{SqliteStore, resolve};
use crate::columns::count_column;
use crate::lane_reclaim::LaneRound;
use crate::portable::{ready, upkeep};
use crate::write_queue::Weight;

/// The number of rows that a step reads: that takes a few milliseconds.
const STEP_ROWS: usize = 1_000;

/// About how many bytes of payloads, results and checkpoints a step removes: every page of them is
/// touched while other jobs wait for the writer.
const STEP_BYTES_MAX: i64 = 512 << 10;

/// Where the walks continue.
#[derive(Default)]
pub(crate) struct Walks {
    /// Behind this task number.
    history: Option<i64>,
    /// Behind this tenant and key.
    keys: Option<(String, String)>,
    /// The round over the lanes that is under way.
    pub lanes: Option<LaneRound>,
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn prune(&self, what: Prunable, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        match what {
            Prunable::History => self.prune_history(before, limit).await,
            Prunable::Keys => self.prune_keys(before, limit).await,
            // No worker can keep a ledger in an embedded store.
            Prunable::Ledger => Ok(Pruned::default()),
            Prunable::Forecast if !self.has_past_minutes(before).await? => Ok(Pruned::default()),
            Prunable::Forecast | Prunable::Occurrences | Prunable::Nonces => {
                self.prune_by_statement(what, before, limit, Weight { rows: limit, ..Weight::SMALL }).await
            }
            Prunable::BreakerCounts | Prunable::Workers => {
                self.prune_by_statement(what, before, limit, Weight::SMALL).await
            }
            Prunable::Lanes => self.prune_lanes(limit).await,
        }
    }

    async fn resolve(&self) -> Result<Resolved, StoreError> {
        self.writer().call(WriteClass::Progress, Weight::SMALL, resolve::resolve).await
    }

    async fn review(&self) -> Result<(), StoreError> {
        let reviewed = *self.shared.reviewed.lock();
        let work = move |session: &mut Session<'_>| resolve::review(session, reviewed);
        *self.shared.reviewed.lock() = self.writer().call(WriteClass::Progress, Weight::SMALL, work).await?.or_front();
        Ok(())
    }

    async fn wait_for_notes(&self) {
        self.shared.left.notified().await;
    }
}

impl SqliteStore {
    async fn prune_by_statement(
        &self,
        what: Prunable,
        before: Timestamp,
        limit: usize,
        weight: Weight,
    ) -> Result<Pruned, StoreError> {
        let work = move |session: &mut Session<'_>| ready(upkeep::prune(session, what, before, limit));
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    /// Whether the forecast has past minutes. A reader checks it: usually there are none, and the
    /// writer is left alone.
    async fn has_past_minutes(&self, before: Timestamp) -> Result<bool, StoreError> {
        let minute = Minute::of(before).number();
        let work = move |session: &mut Session<'_>| Ok(session.statements.get(Sql::ForecastPast)?.exists([minute])?);
        self.readers().call(work).await
    }

    async fn prune_history(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let after = self.walks().lock().history;
        let PastTasks { tasks, quarantined, next } =
            self.readers().call(move |session| past_tasks(session, before, after, limit)).await?;
        let found = tasks.len() + quarantined.len();
        let removed = if found == 0 {
            0
        } else {
            let weight = Weight { bytes: found * Weight::SMALL.bytes, rows: found * 3 };
            let work = move |session: &mut Session<'_>| remove(session, before, &tasks, &quarantined);
            self.writer().call(WriteClass::Progress, weight, work).await?
        };
        self.walks().lock().history = next;
        let work = move |session: &mut Session<'_>| {
            let prune = session.statements.get(Sql::FailedChildPrune)?;
            Ok(prune.execute((before.as_millis(), count_column(limit)))?)
        };
        // A child that is no longer in the history cannot be revived.
        let forgotten = self.writer().call(WriteClass::Progress, Weight { rows: limit, ..Weight::SMALL }, work).await?;
        Ok(Pruned { removed, more: next.is_some() || forgotten >= limit })
    }

    async fn prune_keys(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let after = self.walks().lock().keys.clone();
        let PastKeys { keys, next } =
            self.readers().call(move |session| past_keys(session, before, after, limit)).await?;
        let removed = if keys.is_empty() {
            0
        } else {
            let weight = Weight { bytes: keys.len() * Weight::SMALL.bytes, rows: keys.len() };
            self.writer().call(WriteClass::Progress, weight, move |session| free(session, before, &keys)).await?
        };
        let more = next.is_some();
        self.walks().lock().keys = next;
        Ok(Pruned { removed, more })
    }
}

/// The tasks that a step found.
struct PastTasks {
    /// Their numbers.
    tasks: Vec<i64>,
    quarantined: Vec<i64>,
    /// Where the next step continues.
    next: Option<i64>,
}

fn past_tasks(
    session: &mut Session<'_>,
    before: Timestamp,
    after: Option<i64>,
    limit: usize,
) -> Result<PastTasks, Fault> {
    let before = before.as_millis();
    let mut past = PastTasks { tasks: Vec::new(), quarantined: Vec::new(), next: None };
    if after.is_none() {
        let walk = session.statements.get(Sql::QuarantineWalk)?;
        let found = walk.query_map((i64::MIN, before, count_column(limit)), |row| row.get(0))?;
        past.quarantined = found.collect::<Result<_, _>>()?;
    }
    let room = limit - past.quarantined.len();
    let walk = session.statements.get(Sql::HistoryWalk)?;
    let mut rows = walk.query((after.unwrap_or(i64::MIN), count_column(STEP_ROWS)))?;
    let (mut read, mut bytes, mut any_old, mut is_full) = (0, 0, false, room == 0);
    let mut last = after.unwrap_or(i64::MIN);
    while let Some(row) = rows.next()? {
        if past.tasks.len() >= room || bytes >= STEP_BYTES_MAX {
            is_full = true;
            break;
        }
        let (seq, completed_at, created_at): (i64, i64, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        read += 1;
        last = seq;
        any_old |= created_at.is_none_or(|created_at| created_at < before);
        if completed_at < before {
            bytes += row.get::<_, i64>(3)?;
            past.tasks.push(seq);
        }
    }
    // If all of these were submitted later, so were all tasks that follow.
    let goes_on = is_full || (read == STEP_ROWS && any_old);
    past.next = goes_on.then_some(last);
    Ok(past)
}

/// Removes tasks with their bodies and ids. Returns how many. A task that was re-driven meanwhile
/// is no longer in the history.
fn remove(session: &mut Session<'_>, before: Timestamp, tasks: &[i64], quarantined: &[i64]) -> Result<u64, Fault> {
    let mut removed = 0;
    for (sql, numbers) in [(Sql::HistoryRemove, tasks), (Sql::QuarantineRemove, quarantined)] {
        for seq in numbers {
            let delete = session.statements.get(sql)?;
            let id: Option<Vec<u8>> = delete.query_row((seq, before.as_millis()), |row| row.get(0)).optional()?;
            let Some(id) = id else { continue };
            session.statements.get(Sql::BodyDelete)?.execute([seq])?;
            session.statements.get(Sql::IdDelete)?.execute([id])?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The keys that a step found.
struct PastKeys {
    /// Tenants and keys.
    keys: Vec<(String, String)>,
    /// Where the next step continues.
    next: Option<(String, String)>,
}

fn past_keys(
    session: &mut Session<'_>,
    before: Timestamp,
    after: Option<(String, String)>,
    limit: usize,
) -> Result<PastKeys, Fault> {
    let (tenant, key) = after.unwrap_or_default();
    let walk = session.statements.get(Sql::IdempotencyWalk)?;
    let mut rows = walk.query((tenant, key, before.as_millis(), count_column(STEP_ROWS)))?;
    let (mut keys, mut last, mut read) = (Vec::new(), None, 0);
    while let Some(row) = rows.next()? {
        if keys.len() >= limit {
            return Ok(PastKeys { keys, next: last });
        }
        let place: (String, String) = (row.get(0)?, row.get(1)?);
        if row.get(2)? {
            keys.push(place.clone());
        }
        last = Some(place);
        read += 1;
    }
    Ok(PastKeys { keys, next: last.filter(|_| read == STEP_ROWS) })
}

fn free(session: &mut Session<'_>, before: Timestamp, keys: &[(String, String)]) -> Result<u64, Fault> {
    let delete = session.statements.get(Sql::IdempotencyFree)?;
    let mut freed = 0;
    for (tenant, key) in keys {
        freed += u64::try_from(delete.execute((tenant, key, before.as_millis()))?).unwrap_or_default();
    }
    Ok(freed)
}
