//! Moves live rows that cannot be read out of the way.
//!
//! A row that a claim, a start or the reaper cannot read is moved unchanged to the table
//! `quarantine`. The next claim does not meet it again, nothing of it is lost, and an operator can
//! inspect it. This module logs it, once.

use punctual_core::ids::TaskId;
use tracing::error;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::get;
use super::outbox::NotedRow;
use super::row;
use super::statements::Sql;
use super::writer::Writer;
use crate::effects::{Effects, LaneInstant};

/// Moves unreadable rows, given with the columns at fault, and logs them. It is a transaction of
/// its own.
pub(crate) async fn put_away(writer: &mut Writer, rows: &[(Uuid, &'static str)]) -> Result<(), Fault> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    let ids: Vec<Uuid> = rows.iter().map(|(id, _)| *id).collect();
    let reasons: Vec<String> = rows.iter().map(|(_, column)| format!("its {column} cannot be read")).collect();
    writer.session.run("BEGIN").await?;
    let now = writer.now();
    for row in writer.session.query(Sql::QuarantinePut, &[&ids, &reasons, &now.as_millis()]).await? {
        let (id, awaited): (Uuid, Option<bool>) = (row.get(0), row.get(4));
        let effects = Effects::of_quarantine(row::state(&row, 2), LaneInstant::of_columns(row.get(1), row.get(6)));
        writer.tally.record(&effects, || now);
        let (ordering, concurrency) = (row.get(3), row.get(7));
        let noted = NotedRow { id, ordering, concurrency, awaited: awaited == Some(true) };
        writer.notes.record(&effects, &noted);
        error!(task.id = %TaskId::from_uuid(id), reason = row.get::<_, &str>(5), "cannot read a task; it is moved to the quarantine");
    }
    writer.commit().await
}

/// Moves the rows that a reader found unreadable, if they still are.
pub(crate) async fn put_away_unreadable(writer: &mut Writer, ids: &[TaskId]) -> Result<Vec<()>, Fault> {
    let found = get::by_ids(&writer.session, &writer.shared.lanes, ids).await?;
    let bad = found.values().filter_map(|found| found.as_ref().err()).filter(|bad| bad.is_live);
    let bad: Vec<(Uuid, &'static str)> = bad.map(|bad| (bad.row.uuid(), bad.fault.0)).collect();
    put_away(writer, &bad).await?;
    Ok(vec![(); ids.len()])
}

/// Counts the rows in quarantine, up to ten thousand.
pub(crate) async fn count(session: &Session) -> Result<u64, Fault> {
    let rows = session.query(Sql::QuarantineCount, &[]).await?;
    Ok(rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>(0)).unwrap_or(0)))
}
