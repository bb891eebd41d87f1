//! The settings and pauses of queues.

use std::collections::BTreeSet;

use punctual_core::condition::Condition;
use punctual_core::queues::{Changed, LiveCounts, Queue, QueueChange, QueueDecision, QueueWithCounts};
use punctual_core::state::State;
use rusqlite::{OptionalExtension, Row};

use crate::queue_columns::{self, QueueRow};

use super::fault::Fault;
use super::outbox;
use super::session::Session;
use super::statements::Sql;

/// Changes a queue. The writer does it, which also claims: no claim runs meanwhile.
pub(crate) fn change(
    session: &mut Session<'_>,
    tenant: &str,
    name: &str,
    condition: &Condition,
    change: QueueChange,
) -> Result<Changed, Fault> {
    let stored = get(session, tenant, name)?;
    let shown = queue(session, tenant, name)?.map(|shown| shown.queue);
    let (queue, releases_held) = match change.decide((tenant, name), condition, stored, shown) {
        QueueDecision::Answer(changed) => return Ok(changed),
        QueueDecision::Write { queue, releases_held } => (queue, releases_held),
    };
    if releases_held {
        outbox::begin_review_round(session);
    }
    let row = QueueRow::of(&queue);
    session.statements.get(Sql::QueuePut)?.execute((
        &row.tenant,
        &row.name,
        &row.settings,
        row.paused_at,
        &row.paused_by,
        &row.pause_reason,
        row.paused_until,
        row.version,
    ))?;
    if queue.settings.rate_limit.is_none() {
        session.statements.get(Sql::BucketDrop)?.execute((tenant, name))?;
    }
    session.limits.forget();
    Ok(Changed::Done(queue))
}

/// A queue that exists, with its counts.
pub(crate) fn queue(session: &mut Session<'_>, tenant: &str, name: &str) -> Result<Option<QueueWithCounts>, Fault> {
    let set = get(session, tenant, name)?;
    if set.is_none() && !session.statements.get(Sql::QueueUsed)?.exists((tenant, name))? {
        return Ok(None);
    }
    let queue = set.unwrap_or_else(|| Queue::unset(tenant, name));
    let live = live(session, tenant, name)?;
    Ok((!queue.removed || live.any()).then_some(QueueWithCounts { queue, live }))
}

/// The queues of a tenant by name.
pub(crate) fn queues(
    session: &mut Session<'_>,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<QueueWithCounts>, Fault> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut names: BTreeSet<String> = BTreeSet::new();
    for sql in [Sql::QueueNames, Sql::QueueNamesUsed] {
        let query = session.statements.get(sql)?;
        let some = query.query_map((tenant, after.unwrap_or_default(), most), |row| row.get::<_, String>(0))?;
        for name in some {
            names.insert(name?);
        }
    }
    let told = names.iter().take(limit).map(|name| queue(session, tenant, name));
    Ok(told.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Every queue that was set or paused.
pub(crate) fn special(session: &mut Session<'_>) -> Result<Vec<Queue>, Fault> {
    let query = session.statements.get(Sql::QueueSpecial)?;
    let rows: Vec<QueueRow> = query.query_map([], row)?.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().map(|row| session.queue_complaints.read(row).queue).collect())
}

fn get(session: &mut Session<'_>, tenant: &str, name: &str) -> Result<Option<Queue>, Fault> {
    let found = session.statements.get(Sql::QueueGet)?.query_row((tenant, name), row).optional()?;
    Ok(found.map(|row| session.queue_complaints.read(row).queue))
}

fn row(row: &Row<'_>) -> rusqlite::Result<QueueRow> {
    Ok(QueueRow {
        tenant: row.get(0)?,
        name: row.get(1)?,
        settings: row.get(2)?,
        paused_at: row.get(3)?,
        paused_by: row.get(4)?,
        pause_reason: row.get(5)?,
        paused_until: row.get(6)?,
        version: row.get(7)?,
    })
}

fn live(session: &mut Session<'_>, tenant: &str, name: &str) -> Result<LiveCounts, Fault> {
    let query = session.statements.get(Sql::QueueCounts)?;
    let mut rows = query.query((tenant, name))?;
    let mut live = LiveCounts::default();
    while let Some(row) = rows.next()? {
        if let Some(state) = row.get::<_, Option<i64>>(1)? {
            queue_columns::add(&mut live, State::from_code(state), row.get(2)?);
        }
    }
    Ok(live)
}
