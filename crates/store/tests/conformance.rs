//! The conformance suites of the ports, over the SQLite store and over PostgreSQL.

mod sqlite {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use punctual_core::clock::ManualClock;
    use punctual_core::database::Database;
    use punctual_core::ids::NodeId;
    use punctual_store::sqlite::{Options, SqliteStore};
    use punctual_testkit::store::{RowDamage, StoreFactory, TENANT_LANES};
    use rusqlite::Connection;
    use tempfile::TempDir;

    struct Sqlite(TempDir);

    impl Sqlite {
        fn fresh() -> Self {
            Self(TempDir::new().expect("a temporary directory can be made"))
        }

        fn sql(&self, sql: &str) {
            let connection = Connection::open(self.0.path().join("punctual.db")).expect("the database opens");
            connection.busy_timeout(Duration::from_secs(20)).expect("it may wait for the writer");
            connection.execute_batch(sql).expect("the statement is executed");
        }
    }

    #[async_trait]
    impl StoreFactory for Sqlite {
        async fn open(&self, clock: Arc<ManualClock>, node: NodeId) -> Arc<dyn Database> {
            let options = Options { tenant_lanes: TENANT_LANES, ..Options::default() };
            let store = SqliteStore::open(self.0.path(), clock, node, options).expect("the store opens");
            Arc::new(store)
        }

        async fn refuse_tasks(&self, refused: bool) {
            let sql = if refused {
                "CREATE TRIGGER refused BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, 'as if it had failed'); END"
            } else {
                "DROP TRIGGER refused"
            };
            self.sql(sql);
        }

        async fn damage(&self, damage: RowDamage<'_>) {
            self.sql(&damage.statement(|id| format!("x'{}'", id.uuid().simple())));
        }
    }

    mod store {
        use super::Sqlite;
        punctual_testkit::store_conformance!(Sqlite::fresh());
    }

    mod breakers {
        use super::Sqlite;
        punctual_testkit::breakers_conformance!(Sqlite::fresh());
    }

    mod bulk {
        use super::Sqlite;
        punctual_testkit::bulk_conformance!(Sqlite::fresh());
    }

    mod coordinator {
        use super::Sqlite;
        use punctual_testkit::coordinator::OverStore;
        punctual_testkit::coordinator_conformance!(OverStore::new(Sqlite::fresh()));
    }

    mod forecast {
        use super::Sqlite;
        punctual_testkit::forecast_conformance!(Sqlite::fresh());
    }

    mod obstacles {
        use super::Sqlite;
        punctual_testkit::obstacles_conformance!(Sqlite::fresh());
    }

    mod partitions {
        use super::Sqlite;
        punctual_testkit::partitions_conformance!(Sqlite::fresh());
    }

    mod queues {
        use super::Sqlite;
        punctual_testkit::queues_conformance!(Sqlite::fresh());
    }

    mod registry {
        use super::Sqlite;
        punctual_testkit::registry_conformance!(Sqlite::fresh());
    }

    mod resolver {
        use super::Sqlite;
        punctual_testkit::resolver_conformance!(Sqlite::fresh());
    }

    mod retention {
        use super::Sqlite;
        punctual_testkit::retention_conformance!(Sqlite::fresh());
    }

    mod schedules {
        use super::Sqlite;
        punctual_testkit::schedules_conformance!(Sqlite::fresh());
    }

    mod tenants {
        use super::Sqlite;
        punctual_testkit::tenants_conformance!(Sqlite::fresh());
    }

    mod webhook_secrets {
        use super::Sqlite;
        punctual_testkit::webhook_secrets_conformance!(Sqlite::fresh());
    }
}

mod postgres {
    use std::sync::Arc;

    use async_trait::async_trait;
    use punctual_core::clock::{Clock, ManualClock};
    use punctual_core::database::Database;
    use punctual_core::ids::NodeId;
    use punctual_store::postgres::{Options, PostgresStore};
    use punctual_testkit::postgres::{Postgres, execute};
    use punctual_testkit::store::{RowDamage, StoreFactory, TENANT_LANES};

    /// A database on a server of its own.
    struct OnServer {
        _server: Postgres,
        url: String,
    }

    impl OnServer {
        async fn fresh() -> Self {
            let server = Postgres::start().await;
            let url = server.create_database().await;
            Self { _server: server, url }
        }
    }

    #[async_trait]
    impl StoreFactory for OnServer {
        async fn open(&self, clock: Arc<ManualClock>, node: NodeId) -> Arc<dyn Database> {
            let database = punctual_store::postgres::Migrator::connect(&self.url).await.expect("the server answers");
            database.up(clock.now()).await.expect("the schema is made");
            // Every scan for overdue tasks is a full one, even on a slow machine. So it finds the
            // writes of other stores.
            let quick_look = std::time::Duration::from_hours(1);
            let options = Options { quick_look, tenant_lanes: TENANT_LANES, ..Options::default() };
            let store = PostgresStore::connect(&self.url, clock, node, options).await;
            Arc::new(store.expect("the store opens"))
        }

        async fn refuse_tasks(&self, refused: bool) {
            let change =
                if refused { "ADD CONSTRAINT refused CHECK (false) NOT VALID" } else { "DROP CONSTRAINT refused" };
            execute(&self.url, &format!("SET search_path = punctual; ALTER TABLE tasks {change}")).await;
        }

        async fn damage(&self, damage: RowDamage<'_>) {
            let statement = damage.statement(|id| format!("'{}'", id.uuid()));
            execute(&self.url, &format!("SET search_path = punctual; {statement}")).await;
        }
    }

    mod store {
        use super::OnServer;
        punctual_testkit::store_conformance!(OnServer::fresh().await);
    }

    mod breakers {
        use super::OnServer;
        punctual_testkit::breakers_conformance!(OnServer::fresh().await);
    }

    mod bulk {
        use super::OnServer;
        punctual_testkit::bulk_conformance!(OnServer::fresh().await);
    }

    mod coordinator {
        use super::OnServer;
        use punctual_testkit::coordinator::OverStore;
        punctual_testkit::coordinator_conformance!(OverStore::new(OnServer::fresh().await));
    }

    mod forecast {
        use super::OnServer;
        punctual_testkit::forecast_conformance!(OnServer::fresh().await);
    }

    mod obstacles {
        use super::OnServer;
        punctual_testkit::obstacles_conformance!(OnServer::fresh().await);
    }

    mod partitions {
        use super::OnServer;
        punctual_testkit::partitions_conformance!(OnServer::fresh().await);
    }

    mod queues {
        use super::OnServer;
        punctual_testkit::queues_conformance!(OnServer::fresh().await);
    }

    mod registry {
        use super::OnServer;
        punctual_testkit::registry_conformance!(OnServer::fresh().await);
    }

    mod resolver {
        use super::OnServer;
        punctual_testkit::resolver_conformance!(OnServer::fresh().await);
    }

    mod retention {
        use super::OnServer;
        punctual_testkit::retention_conformance!(OnServer::fresh().await);
    }

    mod schedules {
        use super::OnServer;
        punctual_testkit::schedules_conformance!(OnServer::fresh().await);
    }

    mod tenants {
        use super::OnServer;
        punctual_testkit::tenants_conformance!(OnServer::fresh().await);
    }

    mod webhook_secrets {
        use super::OnServer;
        punctual_testkit::webhook_secrets_conformance!(OnServer::fresh().await);
    }
}
