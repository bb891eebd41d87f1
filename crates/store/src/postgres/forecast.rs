//! What will be due in which minute: the counts that every transaction keeps (see `ahead.rs`), and the schedules that
//! will fire.

use async_trait::async_trait;
use punctual_core::forecast::{Forecast, Minute, UpcomingPage};
use punctual_core::store::StoreError;
use tokio_postgres::Row;

use super::PostgresStore;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::ahead::Ahead;
use crate::schedule_columns::{UpcomingColumns, upcoming_page};

#[async_trait]
impl Forecast for PostgresStore {
    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError> {
        let (from, to) = (from.number(), to.number());
        let read = async |session: &Session| session.query(Sql::ForecastList, &[&tenant, &from, &to]).await;
        let counted = |row: &Row| (Minute::numbered(row.get(0)), row.get::<_, i64>(1).cast_unsigned());
        Ok(self.reads().call(read).await?.iter().map(counted).collect())
    }

    async fn upcoming(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<UpcomingPage, StoreError> {
        let (after, most) = (after.unwrap_or_default(), i64::try_from(limit).unwrap_or(i64::MAX));
        let read = async |session: &Session| session.query(Sql::ForecastSchedules, &[&tenant, &after, &most]).await;
        Ok(upcoming_page(self.reads().call(read).await?.iter().map(upcoming_columns).collect(), limit))
    }

    async fn upcoming_count(&self, tenant: &str) -> Result<u64, StoreError> {
        let read = async |session: &Session| session.query(Sql::ForecastSchedulesCount, &[&tenant]).await;
        Ok(self.reads().call(read).await?.first().map_or(0, |row| row.get::<_, i64>(0).cast_unsigned()))
    }
}

fn upcoming_columns(row: &Row) -> UpcomingColumns {
    UpcomingColumns {
        id: row.get(0),
        name: row.get(1),
        next_run_at: row.get(2),
        run_count: row.get(3),
        definition: row.get(4),
        reserved: row.get(5),
    }
}

/// How a transaction changed what will be due, as columns.
#[derive(Default)]
pub(crate) struct Minutes {
    lanes: Vec<i64>,
    numbers: Vec<i64>,
    tasks: Vec<i64>,
}

impl Minutes {
    pub(crate) fn take(ahead: &mut Ahead) -> Self {
        let mut minutes = Self::default();
        for (lane, minute, tasks) in ahead.take() {
            minutes.lanes.push(lane);
            minutes.numbers.push(minute.number());
            minutes.tasks.push(tasks);
        }
        minutes
    }

    /// One statement, if there is anything.
    pub(crate) async fn write(&self, session: &Session, slot: i32) -> Result<(), Fault> {
        if !self.lanes.is_empty() {
            // The common way does not carry it along.
            Box::pin(self.add(session, slot)).await?;
        }
        Ok(())
    }

    async fn add(&self, session: &Session, slot: i32) -> Result<(), Fault> {
        session.execute(Sql::ForecastAdd, &[&self.lanes, &self.numbers, &self.tasks, &slot]).await?;
        Ok(())
    }
}
