//! Serves the port of reads that explain: each call reads what [`obstacles`] or the forecast has.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::forecast::{Minute, UpcomingPage};
use punctual_core::insight::Insight;
use punctual_core::obstacles::{Blockers, Holders, TasksAhead, TurnStatus};
use punctual_core::queues::Bucket;
use punctual_core::store::StoreError;
use punctual_core::task::Task;

use super::forecast::{column, upcoming_columns};
use super::session::Session;
use super::statements::Sql;
use super::{SqliteStore, obstacles};
use crate::schedule_columns::upcoming_page;

#[async_trait]
impl Insight for SqliteStore {
    async fn blockers(&self, task: &Task, first: usize) -> Result<Blockers, StoreError> {
        let (child, parents) = (task.id, task.body.dependencies.ids.clone());
        self.readers().call(move |session| obstacles::blockers(session, child, &parents, first)).await
    }

    async fn key_turn(&self, task: &Task, most: usize) -> Result<Option<TurnStatus>, StoreError> {
        let id = task.id;
        self.readers().call(move |session| obstacles::key_turn(session, id, most)).await
    }

    async fn ahead(&self, task: &Task, aging_millis: i64, most: usize) -> Result<TasksAhead, StoreError> {
        let (id, lane) = (task.id, Arc::clone(&task.lane));
        self.readers().call(move |session| obstacles::ahead(session, id, &lane, aging_millis, most)).await
    }

    async fn bucket(&self, tenant: &str, queue: &str) -> Result<Option<Bucket>, StoreError> {
        let (tenant, queue) = (tenant.to_owned(), queue.to_owned());
        self.readers().call(move |session| obstacles::bucket(session, &tenant, &queue)).await
    }

    async fn holders(&self, tenant: &str, most: usize) -> Result<Holders, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| obstacles::holders(session, &tenant, most)).await
    }

    async fn waiting(&self, tenant: &str, from: Minute, to: Minute) -> Result<Vec<(Minute, u64)>, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let query = session.statements.get(Sql::ForecastList)?;
            let rows = query.query_map((tenant, from.number(), to.number()), |row| {
                Ok((Minute::numbered(row.get(0)?), row.get::<_, i64>(1)?.cast_unsigned()))
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        };
        self.readers().call(work).await
    }

    async fn upcoming(&self, tenant: &str, after: Option<String>, limit: usize) -> Result<UpcomingPage, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let query = session.statements.get(Sql::ForecastSchedules)?;
            let rows = query.query_map((tenant, after.unwrap_or_default(), column(limit)), upcoming_columns)?;
            Ok(upcoming_page(rows.collect::<Result<_, _>>()?, limit))
        };
        self.readers().call(work).await
    }

    async fn upcoming_count(&self, tenant: &str) -> Result<u64, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let query = session.statements.get(Sql::ForecastSchedulesCount)?;
            Ok(query.query_row([tenant], |row| row.get::<_, i64>(0))?.cast_unsigned())
        };
        self.readers().call(work).await
    }
}
