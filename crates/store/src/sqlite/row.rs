//! How this store reads the columns of a task (see [`crate::task_row`]).

use std::sync::Arc;

use punctual_core::lane::Lane;
use punctual_core::task::Task;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use uuid::Uuid;

use crate::columns::Unreadable;
use crate::task_row::{self, BEHIND, TaskColumn, TaskRow};

/// The column with the number of the row, behind those of its task.
pub(crate) const SEQ: usize = BEHIND;

/// Behind it, for a due task: the name of its concurrency key.
pub(crate) const CONCURRENCY: usize = BEHIND + 1;

/// Reads a live task.
pub(crate) fn live(row: &Row<'_>, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    let task = task_row::task(row, lane)?;
    if task.state().is_final() { Err(Unreadable("state")) } else { Ok(task) }
}

/// Reads a final task.
pub(crate) fn finished(row: &Row<'_>, lane: Option<Arc<Lane>>) -> Result<Task, Unreadable> {
    let task = task_row::task(row, lane)?;
    match task.completed_at {
        _ if !task.state().is_final() => Err(Unreadable("state")),
        None => Err(Unreadable("completed_at")),
        Some(_) => Ok(task),
    }
}

impl TaskRow for Row<'_> {
    fn integer(&self, column: TaskColumn) -> Result<Option<i64>, Unreadable> {
        read(self, column, |value| value.as_i64().ok())
    }

    fn boolean(&self, column: TaskColumn) -> Result<Option<bool>, Unreadable> {
        read(self, column, |value| value.as_i64().ok().map(|number| number != 0))
    }

    fn text(&self, column: TaskColumn) -> Result<Option<&str>, Unreadable> {
        read(self, column, |value| value.as_str().ok())
    }

    fn bytes(&self, column: TaskColumn) -> Result<Option<&[u8]>, Unreadable> {
        read(self, column, |value| value.as_blob().ok())
    }

    fn uuid(&self, column: TaskColumn) -> Result<Option<Uuid>, Unreadable> {
        read(self, column, |value| Uuid::from_slice(value.as_blob().ok()?).ok())
    }
}

fn read<'r, T>(
    row: &'r Row<'_>,
    TaskColumn(column, name): TaskColumn,
    value: impl FnOnce(ValueRef<'r>) -> Option<T>,
) -> Result<Option<T>, Unreadable> {
    match row.get_ref(column) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(found) => value(found).map(Some).ok_or(Unreadable(name)),
        Err(_) => Err(Unreadable(name)),
    }
}
