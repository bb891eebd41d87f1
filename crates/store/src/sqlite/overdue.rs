//! Finds the tasks that the reaper handles: expired holds, holds of dead nodes, expired waiting
//! tasks.

use std::collections::BTreeSet;

use punctual_core::ids::NodeId;
use punctual_core::task::Task;
use rusqlite::{OptionalExtension, Params};

use crate::columns::{count_column, node_column};
use crate::found_tasks::FoundTasks;

use super::fault::Fault;
use super::get;
use super::quarantine;
use super::session::Session;
use super::statements::Sql;

/// Finds overdue tasks, each once, and rows that are unreadable or astray. Every query seeks in an
/// index and reads overdue rows only.
pub(crate) fn overdue(
    session: &mut Session<'_>,
    dead: &[NodeId],
    limit: usize,
) -> Result<FoundTasks<Task, i64>, Fault> {
    let now = session.now();
    let dead: BTreeSet<i64> = dead.iter().copied().map(node_column).collect();
    let mut found: BTreeSet<i64> = BTreeSet::new();
    for node in holders(session)? {
        let until = if node.is_some_and(|node| dead.contains(&node)) { i64::MAX } else { now.as_millis() };
        gather(session, Sql::HeldExpired, (node, until, room(limit, &found)), &mut found)?;
        gather(session, Sql::HeldWithoutEnd, (node, room(limit, &found)), &mut found)?;
    }
    gather(session, Sql::WaitingExpired, (now.as_millis(), room(limit, &found)), &mut found)?;
    let mut overdue = FoundTasks::default();
    for seq in found {
        match get::live(session, seq)? {
            Some(Ok(task)) if !quarantine::is_astray(session, seq)? => overdue.tasks.push(task),
            Some(_) => overdue.unreadable.push(seq),
            None => {}
        }
    }
    Ok(overdue)
}

/// The nodes that hold tasks, each found by one seek. None stands for pull workers, which have no
/// node.
pub(crate) fn holders(session: &mut Session<'_>) -> Result<Vec<Option<i64>>, Fault> {
    let first = session.statements.get(Sql::HeldFirstNode)?;
    let mut node: Option<Option<i64>> = first.query_row([], |row| row.get(0)).optional()?;
    let next = session.statements.get(Sql::HeldNextNode)?;
    let mut holders = Vec::new();
    while let Some(holder) = node {
        holders.push(holder);
        node = next.query_row([holder.unwrap_or(i64::MIN)], |row| row.get(0)).optional()?;
    }
    Ok(holders)
}

/// Adds the numbers of the rows that a statement finds.
fn gather(
    session: &mut Session<'_>,
    sql: Sql,
    parameters: impl Params,
    found: &mut BTreeSet<i64>,
) -> Result<(), Fault> {
    let query = session.statements.get(sql)?;
    let mut rows = query.query(parameters)?;
    while let Some(row) = rows.next()? {
        found.insert(row.get(0)?);
    }
    Ok(())
}

fn room(limit: usize, found: &BTreeSet<i64>) -> i64 {
    count_column(limit.saturating_sub(found.len()))
}
