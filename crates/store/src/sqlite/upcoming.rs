//! Reads the waiting tasks of a tenant that are due next, lane by lane.
//!
//! Called by the port of reads that explain. Each lane is an ordered range of an index, read up to
//! the last of the soonest that were found before. So a page reads little more than it returns,
//! apart from one look into every lane.

use std::collections::BTreeMap;

use punctual_core::forecast::UpcomingTask;
use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use uuid::Uuid;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;
use crate::columns::count_column;

/// At most `limit` waiting tasks strictly behind `after`, due before `until`, the soonest first.
pub(crate) fn tasks(
    session: &mut Session<'_>,
    tenant: &str,
    after: (Timestamp, i64),
    until: Timestamp,
    limit: usize,
) -> Result<Vec<UpcomingTask>, Fault> {
    let mut soonest: BTreeMap<(i64, i64), UpcomingTask> = BTreeMap::new();
    let mut until = until.as_millis();
    for (lane, kind, queue) in lanes(session, tenant)? {
        for sql in [Sql::UpcomingWithTurn, Sql::UpcomingWithoutTurn] {
            let mut rows =
                session.statements.get(sql)?.query((lane, after.0.as_millis(), after.1, until, count_column(limit)))?;
            while let Some(row) = rows.next()? {
                let (due_at, number, id): (i64, i64, [u8; 16]) = (row.get(0)?, row.get(1)?, row.get(2)?);
                let task = UpcomingTask {
                    due_at: Timestamp::from_millis(due_at),
                    number,
                    id: TaskId::from_uuid(Uuid::from_bytes(id)),
                    kind: kind.clone(),
                    queue: queue.clone(),
                };
                soonest.insert((due_at, number), task);
                if soonest.len() > limit {
                    soonest.pop_last();
                }
            }
            if let Some((last, _)) = soonest.last_key_value().filter(|_| soonest.len() >= limit) {
                // Of those that are due with the last one, some may have lower numbers.
                until = last.0 + 1;
            }
        }
    }
    Ok(soonest.into_values().collect())
}

fn lanes(session: &mut Session<'_>, tenant: &str) -> Result<Vec<(i64, String, String)>, Fault> {
    let query = session.statements.get(Sql::UpcomingLanes)?;
    let lanes = query.query_map([tenant], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(lanes.collect::<Result<_, _>>()?)
}
