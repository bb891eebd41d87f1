//! A session as a connection of the calls that both databases share. It answers at once.

use std::future::ready;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Rows, Statement, ffi};

use super::fault::Fault;
use super::session::Session;
use crate::portable::{Column, Connection, Corrupt, Parameter, PortableFault, PortableSql, Row};

impl Connection for Session<'_> {
    type Row = Vec<Value>;
    type Fault = Fault;

    fn query(
        &mut self,
        sql: PortableSql,
        parameters: &[&dyn Parameter],
    ) -> impl Future<Output = Result<Vec<Vec<Value>>, Fault>> + Send {
        ready(query(self, sql, parameters))
    }

    fn execute(
        &mut self,
        sql: PortableSql,
        parameters: &[&dyn Parameter],
    ) -> impl Future<Output = Result<u64, Fault>> + Send {
        ready(execute(self, sql, parameters))
    }
}

fn query(session: &mut Session<'_>, sql: PortableSql, parameters: &[&dyn Parameter]) -> Result<Vec<Vec<Value>>, Fault> {
    rows_of(bound(session, sql, parameters)?.raw_query())
}

/// The rows of a statement that runs.
pub(super) fn rows_of(mut rows: Rows<'_>) -> Result<Vec<Vec<Value>>, Fault> {
    let columns = rows.as_ref().map_or(0, rusqlite::Statement::column_count);
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?);
    }
    Ok(found)
}

fn execute(session: &mut Session<'_>, sql: PortableSql, parameters: &[&dyn Parameter]) -> Result<u64, Fault> {
    Ok(bound(session, sql, parameters)?.raw_execute()? as u64)
}

/// The statement with its parameters. A parameter is found by the number in its name (`?2` or
/// `$2`): SQLite itself numbers `$2` by where it stands in the text.
fn bound<'s, 'c>(
    session: &'s mut Session<'c>,
    sql: PortableSql,
    parameters: &[&dyn Parameter],
) -> Result<&'s mut Statement<'c>, Fault> {
    let statement = session.statements.get(sql.into())?;
    for place in 1..=statement.parameter_count() {
        let name = statement.parameter_name(place).expect("invariant: the parameters of statements are numbered");
        let number: usize = name[1..].parse().expect("invariant: the parameters of statements are numbered");
        let parameter: &dyn rusqlite::ToSql = parameters[number - 1];
        statement.raw_bind_parameter(place, parameter)?;
    }
    Ok(statement)
}

impl Row for Vec<Value> {
    fn get<T: Column>(&self, index: usize) -> Result<T, Corrupt> {
        let value = self.as_slice().get(index).map_or(ValueRef::Null, ValueRef::from);
        T::column_result(value).map_err(|error| Corrupt(format!("column {index} cannot be read: {error}")))
    }
}

impl From<Corrupt> for Fault {
    fn from(Corrupt(what): Corrupt) -> Self {
        Fault::Corrupt(what)
    }
}

impl PortableFault for Fault {
    fn is_duplicate(&self) -> bool {
        let Fault::Sqlite(error) = self else { return false };
        let code = error.sqlite_error().map(|error| error.extended_code);
        matches!(code, Some(ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY))
    }
}
