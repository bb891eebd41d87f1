//! Parameters and columns that hold several values.

use punctual_core::ids::TaskId;
use rusqlite::types::{FromSqlResult, ToSqlOutput, ValueRef};
use serde_json::Value;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, Type, to_sql_checked};
use uuid::Uuid;

use crate::columns::names_column;

type PostgresError = Box<dyn std::error::Error + Sync + Send>;

/// The parameter of a statement that takes several rows: a JSON array of objects or arrays.
/// PostgreSQL reads it with `json_to_recordset` or `json_array_elements`, SQLite with `json_each`.
pub(crate) fn rows_column(rows: impl Iterator<Item = Value>) -> String {
    rows.collect::<Value>().to_string()
}

/// A list of names as a parameter: an array in PostgreSQL, a JSON array in SQLite.
#[derive(Debug)]
pub(crate) struct Names<'a>(pub &'a [String]);

impl rusqlite::ToSql for Names<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(names_column(self.0).into())
    }
}

impl tokio_postgres::types::ToSql for Names<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, PostgresError> {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <&[String] as tokio_postgres::types::ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// A column of task ids: an array in PostgreSQL, a blob of 16 bytes each in SQLite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskIds(Vec<Uuid>);

impl TaskIds {
    pub(crate) fn new(tasks: &[TaskId]) -> Self {
        Self(tasks.iter().map(|task| task.uuid()).collect())
    }

    pub(crate) fn into_tasks(self) -> Vec<TaskId> {
        self.0.into_iter().map(TaskId::from_uuid).collect()
    }
}

impl rusqlite::ToSql for TaskIds {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|uuid| *uuid.as_bytes()).collect();
        Ok(bytes.into())
    }
}

impl rusqlite::types::FromSql for TaskIds {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let (ids, _) = value.as_blob()?.as_chunks();
        Ok(Self(ids.iter().copied().map(Uuid::from_bytes).collect()))
    }
}

impl tokio_postgres::types::ToSql for TaskIds {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, PostgresError> {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <Vec<Uuid> as tokio_postgres::types::ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

impl<'a> tokio_postgres::types::FromSql<'a> for TaskIds {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, PostgresError> {
        Vec::from_sql(kind, raw).map(Self)
    }

    fn accepts(kind: &Type) -> bool {
        <Vec<Uuid> as tokio_postgres::types::FromSql>::accepts(kind)
    }
}
