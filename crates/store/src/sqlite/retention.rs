//! Removes what is over in small steps: a reader looks, and only what it found goes to the writer.
//!
//! Finished tasks are looked at in the order of their submission, without an index of their
//! own: whatever came to rest before an instant was submitted before it, so that a walk ends
//! where all are younger. Keys are looked at one by one, in their order. A walk goes on where
//! the last step ended; one that is forgotten, as at a restart, begins anew.

use async_trait::async_trait;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Pruned, Resolved, Upkeep};
use rusqlite::OptionalExtension;

use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use super::{SqliteStore, resolve};
use crate::write_queue::Weight;

/// Rows that a step looks at: reading them takes a few milliseconds.
const LOOK: usize = 1_000;

/// Bytes of payloads, results and checkpoints that a step removes, about: every page of them is
/// touched, while others wait for the writer.
const MOST_BYTES: i64 = 512 << 10;

/// Where the walks stand.
#[derive(Default)]
pub(crate) struct Walks {
    /// Behind this number.
    history: Option<i64>,
    /// Behind this key of this tenant.
    keys: Option<(String, String)>,
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn prune(&self, what: Prunable, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        match what {
            Prunable::History => self.prune_history(before, limit).await,
            Prunable::Keys => self.prune_keys(before, limit).await,
            // No worker can keep a ledger in an embedded store.
            Prunable::Ledger => Ok(Pruned::default()),
            Prunable::Forecast => self.prune_minutes(before, limit).await,
            Prunable::Occurrences => self.prune_occurrences(before, limit).await,
            Prunable::BreakerCounts => self.prune_all(Sql::BreakerCountsPrune, before).await,
            Prunable::Workers => self.prune_all(Sql::WorkerForget, before).await,
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
    async fn prune_occurrences(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let work = move |session: &mut Session<'_>| {
            let removed = session.statements.get(Sql::OccurrencePrune)?.execute((before.as_millis(), column(limit)))?;
            Ok(Pruned { removed: removed as u64, more: removed >= limit })
        };
        self.writer().call(WriteClass::Progress, Weight { rows: limit, ..Weight::SMALL }, work).await
    }

    /// Removes all that is over, by a statement: of what there is little.
    async fn prune_all(&self, sql: Sql, before: Timestamp) -> Result<Pruned, StoreError> {
        let work = move |session: &mut Session<'_>| {
            let removed = session.statements.get(sql)?.execute([before.as_millis()])?;
            Ok(Pruned { removed: removed as u64, more: false })
        };
        self.writer().call(WriteClass::Progress, Weight::SMALL, work).await
    }

    async fn prune_history(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let after = self.walks().lock().history;
        let Past { tasks, quarantined, next } =
            self.readers().call(move |session| past(session, before, after, limit)).await?;
        let found = tasks.len() + quarantined.len();
        let removed = if found == 0 {
            0
        } else {
            let weight = Weight { bytes: found * Weight::SMALL.bytes, rows: found * 3 };
            let work = move |session: &mut Session<'_>| remove(session, before, &tasks, &quarantined);
            self.writer().call(WriteClass::Progress, weight, work).await?
        };
        self.walks().lock().history = next;
        Ok(Pruned { removed, more: next.is_some() })
    }

    async fn prune_keys(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let after = self.walks().lock().keys.clone();
        let Used { keys, next } = self.readers().call(move |session| used(session, before, after, limit)).await?;
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

/// What a look at the history found.
struct Past {
    /// The numbers of those whose time is over.
    tasks: Vec<i64>,
    quarantined: Vec<i64>,
    /// Where the next look begins.
    next: Option<i64>,
}

fn past(session: &mut Session<'_>, before: Timestamp, after: Option<i64>, limit: usize) -> Result<Past, Fault> {
    let before = before.as_millis();
    let mut past = Past { tasks: Vec::new(), quarantined: Vec::new(), next: None };
    if after.is_none() {
        let walk = session.statements.get(Sql::QuarantineWalk)?;
        let found = walk.query_map((i64::MIN, before, column(limit)), |row| row.get(0))?;
        past.quarantined = found.collect::<Result<_, _>>()?;
    }
    let room = limit - past.quarantined.len();
    let walk = session.statements.get(Sql::HistoryWalk)?;
    let mut rows = walk.query((after.unwrap_or(i64::MIN), column(LOOK)))?;
    let (mut looked, mut bytes, mut any_old, mut is_full) = (0, 0, false, room == 0);
    let mut last = after.unwrap_or(i64::MIN);
    while let Some(row) = rows.next()? {
        if past.tasks.len() >= room || bytes >= MOST_BYTES {
            is_full = true;
            break;
        }
        let (seq, completed_at, created_at): (i64, i64, Option<i64>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        looked += 1;
        last = seq;
        any_old |= created_at.is_none_or(|created_at| created_at < before);
        if completed_at < before {
            bytes += row.get::<_, i64>(3)?;
            past.tasks.push(seq);
        }
    }
    // Where all were submitted later, all that follow were.
    let goes_on = is_full || (looked == LOOK && any_old);
    past.next = goes_on.then_some(last);
    Ok(past)
}

/// Removes those that are still over, with their bodies and ids; gives how many. One that was
/// driven again meanwhile is not in the history any more.
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

/// What a look at the keys found.
struct Used {
    /// Tenants and keys.
    keys: Vec<(String, String)>,
    /// Where the next look begins.
    next: Option<(String, String)>,
}

fn used(
    session: &mut Session<'_>,
    before: Timestamp,
    after: Option<(String, String)>,
    limit: usize,
) -> Result<Used, Fault> {
    let (tenant, key) = after.unwrap_or_default();
    let walk = session.statements.get(Sql::IdempotencyWalk)?;
    let mut rows = walk.query((tenant, key, before.as_millis(), column(LOOK)))?;
    let (mut keys, mut last, mut looked) = (Vec::new(), None, 0);
    while let Some(row) = rows.next()? {
        if keys.len() >= limit {
            return Ok(Used { keys, next: last });
        }
        let place: (String, String) = (row.get(0)?, row.get(1)?);
        if row.get(2)? {
            keys.push(place.clone());
        }
        last = Some(place);
        looked += 1;
    }
    Ok(Used { keys, next: last.filter(|_| looked == LOOK) })
}

fn free(session: &mut Session<'_>, before: Timestamp, keys: &[(String, String)]) -> Result<u64, Fault> {
    let delete = session.statements.get(Sql::IdempotencyFree)?;
    let mut freed = 0;
    for (tenant, key) in keys {
        freed += u64::try_from(delete.execute((tenant, key, before.as_millis()))?).unwrap_or_default();
    }
    Ok(freed)
}

fn column(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
