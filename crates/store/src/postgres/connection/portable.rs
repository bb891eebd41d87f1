//! A session as a connection of the calls that both databases share.

use tokio_postgres::types::ToSql;

use super::Session;
use crate::portable::{Column, Connection, Corrupt, Parameter, PortableFault, PortableSql, Row};
use crate::postgres::fault::Fault;

impl Connection for &Session {
    type Row = tokio_postgres::Row;
    type Fault = Fault;

    async fn query(
        &mut self,
        sql: PortableSql,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<tokio_postgres::Row>, Fault> {
        Session::query(self, sql.into(), &native(parameters)).await
    }

    async fn execute(&mut self, sql: PortableSql, parameters: &[&dyn Parameter]) -> Result<u64, Fault> {
        Session::execute(self, sql.into(), &native(parameters)).await
    }
}

fn native<'a>(parameters: &[&'a dyn Parameter]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| *parameter as &(dyn ToSql + Sync)).collect()
}

impl Row for tokio_postgres::Row {
    fn get<T: Column>(&self, index: usize) -> Result<T, Corrupt> {
        self.try_get(index).map_err(|error| Corrupt(format!("a column cannot be read: {error}")))
    }
}

impl From<Corrupt> for Fault {
    fn from(Corrupt(what): Corrupt) -> Self {
        Fault::Corrupt(what)
    }
}

impl PortableFault for Fault {
    fn is_duplicate(&self) -> bool {
        self.is_unique_violation()
    }
}
