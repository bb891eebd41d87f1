//! How this store reads the columns of a task (see [`crate::task_row`]), and writes some columns.

use std::error::Error;

use punctual_core::state::State;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type, accepts};
use uuid::Uuid;

use crate::columns::Unreadable;
use crate::task_row::{BEHIND, TaskColumn, TaskRow};

/// Behind the columns of due tasks: number of submission, size of the payload, location of the row,
/// index of the look, whether the task gives way, name of its concurrency key.
pub(crate) const SEQ: usize = BEHIND;
pub(crate) const PAYLOAD_BYTES: usize = BEHIND + 1;
pub(crate) const PLACE: usize = BEHIND + 2;
pub(crate) const LOOK: usize = BEHIND + 3;
pub(crate) const GIVES_WAY: usize = BEHIND + 4;
pub(crate) const CONCURRENCY: usize = BEHIND + 5;

/// Behind the columns of queued tasks: location of the row.
pub(crate) const PLACE_OF_QUEUED: usize = BEHIND;

impl TaskRow for Row {
    fn integer(&self, column: TaskColumn) -> Result<Option<i64>, Unreadable> {
        get::<Option<Integer>>(self, column).map(|integer| integer.map(|Integer(value)| value))
    }

    fn boolean(&self, column: TaskColumn) -> Result<Option<bool>, Unreadable> {
        get(self, column)
    }

    fn text(&self, column: TaskColumn) -> Result<Option<&str>, Unreadable> {
        get(self, column)
    }

    fn bytes(&self, column: TaskColumn) -> Result<Option<&[u8]>, Unreadable> {
        get(self, column)
    }

    fn uuid(&self, column: TaskColumn) -> Result<Option<Uuid>, Unreadable> {
        get(self, column)
    }
}

fn get<'r, T: FromSql<'r>>(row: &'r Row, TaskColumn(column, name): TaskColumn) -> Result<T, Unreadable> {
    row.try_get(column).map_err(|_| Unreadable(name))
}

/// A `smallint`, an `integer` or a `bigint`.
pub(crate) struct Integer(pub i64);

impl<'a> FromSql<'a> for Integer {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            _ => i64::from_sql(kind, raw)?,
        }))
    }

    accepts!(INT2, INT4, INT8);
}

/// The state in a column, if it is valid.
pub(crate) fn state(row: &Row, column: usize) -> Option<State> {
    State::from_code(row.get::<_, Integer>(column).0)
}

/// The index that a column counted from 1 stands for.
pub(crate) fn index(row: &Row, column: usize) -> usize {
    usize::try_from(row.get::<_, i64>(column) - 1).expect("invariant: SQL counts from 1")
}

/// The column of a count of attempts or crashes, saturated to what the column can hold.
pub(crate) fn count_column(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The column of a state.
pub(crate) fn state_column(state: State) -> i16 {
    i16::from(state.code())
}

/// A column that is mostly NULL. An empty array costs nothing: a missing element is NULL.
pub(crate) fn sparse<T>(column: Vec<Option<T>>) -> Vec<Option<T>> {
    if column.iter().all(Option::is_none) { Vec::new() } else { column }
}

/// Numbers the rows of classes from 1: one number for each row, in order.
pub(crate) fn class_numbers<T>(classes: &[&[T]]) -> Vec<i32> {
    classes.iter().zip(1..).flat_map(|(class, number)| std::iter::repeat_n(number, class.len())).collect()
}
