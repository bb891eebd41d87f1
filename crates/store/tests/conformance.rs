//! The conformance suites of the ports, over the SQLite store.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::store::{Ports, StoreFactory};
use tempfile::TempDir;

struct Sqlite(TempDir);

impl Sqlite {
    fn fresh() -> Self {
        Self(TempDir::new().expect("a temporary directory can be made"))
    }
}

#[async_trait]
impl StoreFactory for Sqlite {
    async fn open(&self, clock: Arc<ManualClock>, node: NodeId) -> Ports {
        let store = SqliteStore::open(self.0.path(), clock, node, Options::default()).expect("the store opens");
        let store = Arc::new(store);
        Ports { store: store.clone(), coordinator: store.clone(), registry: store }
    }
}

mod store {
    use super::Sqlite;
    punctual_testkit::store_conformance!(Sqlite::fresh());
}

mod coordinator {
    use super::Sqlite;
    use punctual_testkit::coordinator::OverStore;
    punctual_testkit::coordinator_conformance!(OverStore::new(Sqlite::fresh()));
}

mod registry {
    use super::Sqlite;
    punctual_testkit::registry_conformance!(Sqlite::fresh());
}
