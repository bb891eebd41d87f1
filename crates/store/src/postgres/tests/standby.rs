//! The read store: what is read from it, and when the primary answers instead.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::bulk::BulkOperations;
use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, Registry};
use punctual_core::state::State;
use punctual_core::store::{Filter, Store};
use punctual_core::task::Task;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_testkit::postgres::{Postgres, execute};

use super::super::standby::lag::Positions;
use super::super::{ConnectError, Options, PostgresStore, ReadStore};
use super::{Fixture, complete, ids, insert, lease};

const WITHIN: Duration = Duration::from_secs(30);

/// A store that reads lists from a standby, which may lag by a given time.
struct Replicated {
    fixture: Fixture,
    standby: Postgres,
    store: PostgresStore,
}

impl Replicated {
    async fn open(max_lag: Duration) -> Self {
        let fixture = Fixture::open().await;
        let standby = fixture.server.standby().await;
        let store = open(&fixture.url, &url_at(&fixture, &standby), max_lag).await.unwrap();
        record_presence(&store).await;
        Self { fixture, standby, store }
    }

    async fn listed(&self) -> Vec<Task> {
        let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
        self.store.list(filter, None, 100).await.unwrap().tasks
    }

    async fn counted(&self) -> u64 {
        self.store.counts().await.unwrap().iter().map(|count| count.tasks).sum()
    }

    /// Stops the replay: the standby does not show later commits.
    async fn pause(&self) {
        self.standby.execute("SELECT pg_wal_replay_pause()").await;
        eventually("the replay is paused", WITHIN, async || {
            let state = self.standby.execute("SELECT pg_get_wal_replay_pause_state()").await;
            if state == [[Some("paused".to_owned())]] { Ok(()) } else { Err(format!("{state:?}")) }
        })
        .await;
    }

    /// Waits until a list has this many tasks.
    async fn until_listed(&self, count: usize) {
        eventually("the list has all tasks", WITHIN, async || {
            let listed = self.listed().await.len();
            if listed == count { Ok(()) } else { Err(listed.to_string()) }
        })
        .await;
    }

    async fn until_lag(&self, fits: impl Fn(Option<Duration>) -> bool) {
        eventually("the lag is known", WITHIN, async || {
            let lag = self.store.read_store_lag();
            if fits(lag) { Ok(()) } else { Err(format!("{lag:?}")) }
        })
        .await;
    }

    /// Waits until the lag is known, so that the standby is asked.
    async fn until_asked(&self) {
        self.until_lag(|lag| lag.is_some()).await;
    }
}

/// Records the presence of the node, as every node does.
async fn record_presence(store: &PostgresStore) {
    let nothing = String::new;
    let sighting = NodePresence {
        id: NodeId::new(7),
        name: nothing(),
        address: nothing(),
        roles: Vec::new(),
        version: nothing(),
        skew_millis: 0,
        lease: None,
        first_seen_at: START,
        last_seen_at: START,
        session: NodeSession::Unknown,
        gone_at: None,
    };
    store.record_node(sighting).await.unwrap();
}

fn url_at(fixture: &Fixture, server: &Postgres) -> String {
    let (_, database) = fixture.url.rsplit_once('/').unwrap();
    server.url(database)
}

async fn open(url: &str, read_from: &str, max_lag: Duration) -> Result<PostgresStore, ConnectError> {
    let read_store = Some(ReadStore { url: read_from.to_owned(), max_lag });
    let options = Options { read_store, ..Options::default() };
    PostgresStore::connect(url, Arc::new(ManualClock::new(START)), NodeId::new(7), options).await
}

#[tokio::test]
async fn only_lists_and_counts_are_read_from_the_standby() {
    let replicated = Replicated::open(Duration::from_hours(1)).await;
    let store = &replicated.store;
    let first = insert(store, task()).await;
    replicated.until_asked().await;
    replicated.until_listed(1).await;
    replicated.pause().await;

    let second = insert(store, task().queue("other")).await;
    assert_eq!(ids(&replicated.listed().await), [first.id], "the standby has not seen it");
    assert_eq!(replicated.counted().await, 1);
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    let current = store.list_current(filter, None, 100).await.unwrap().tasks;
    assert_eq!(ids(&current), [second.id, first.id], "a bulk operation sees both");
    assert_eq!(store.get(TENANT, vec![second.id]).await.unwrap()[0].as_ref().unwrap().id, second.id);
    let heads = store.heads(None, START.plus_millis(1), 10).await.unwrap();
    assert_eq!(heads.len(), 2, "scheduling sees both");
    let running = lease(store, &second, 1).await.pop().expect("it is claimed");
    let expired = insert(store, task().queue("expired").expires_at(START)).await;
    assert_eq!(ids(&store.overdue(vec![], 10).await.unwrap()), [expired.id], "the reaper sees it");
    assert!(complete(store, &running).await);
    let done = store.get(TENANT, vec![second.id]).await.unwrap().remove(0).unwrap();
    assert_eq!(done.state(), State::Completed);
    assert_eq!(ids(&replicated.listed().await), [first.id]);

    replicated.standby.execute("SELECT pg_wal_replay_resume()").await;
    replicated.until_listed(3).await;
}

#[tokio::test]
async fn a_late_or_stopped_standby_is_not_asked() {
    let mut replicated = Replicated::open(Duration::from_secs(2)).await;
    insert(&replicated.store, task()).await;
    replicated.until_asked().await;
    replicated.pause().await;
    insert(&replicated.store, task()).await;
    replicated.until_lag(|lag| lag.is_some_and(|lag| lag > Duration::from_secs(2))).await;
    replicated.until_listed(2).await;
    assert_eq!(replicated.counted().await, 2);
    replicated.standby.execute("SELECT pg_wal_replay_resume()").await;
    replicated.until_lag(|lag| lag.is_some_and(|lag| lag < Duration::from_secs(1))).await;

    replicated.standby.kill().await;
    insert(&replicated.store, task()).await;
    assert_eq!(replicated.listed().await.len(), 3, "the primary answers at once");
    replicated.until_lag(|lag| lag.is_none()).await;
    replicated.standby.start_again().await;
    replicated.until_asked().await;
    replicated.until_listed(3).await;
}

#[tokio::test]
async fn the_primary_answers_for_a_frozen_standby() {
    let replicated = Replicated::open(Duration::from_hours(1)).await;
    insert(&replicated.store, task()).await;
    replicated.until_asked().await;
    replicated.until_listed(1).await;
    replicated.standby.freeze().await;
    insert(&replicated.store, task()).await;
    assert_eq!(replicated.listed().await.len(), 2, "the primary answers instead");
    replicated.standby.thaw();
}

/// It has diverged from the store.
#[tokio::test]
async fn a_promoted_standby_is_not_asked() {
    let mut replicated = Replicated::open(Duration::from_hours(1)).await;
    insert(&replicated.store, task()).await;
    replicated.until_asked().await;
    replicated.standby.promote().await;
    execute(&url_at(&replicated.fixture, &replicated.standby), "DELETE FROM punctual.tasks").await;
    replicated.until_lag(|lag| lag.is_none()).await;
    assert_eq!(replicated.listed().await.len(), 1);
}

#[tokio::test]
async fn only_a_standby_of_the_store_is_accepted() {
    let fixture = Fixture::open().await;
    let other = Postgres::unlike_the_others().await;
    let lag = Duration::from_secs(30);
    let refused = async |read_from: &str| open(&fixture.url, read_from, lag).await.err().expect(read_from).to_string();
    let error = refused(&other.url("postgres")).await;
    let port = other.port();
    let begin = format!(
        "the read store at 127.0.0.1:{port}/postgres is not a standby of the store: it is another server (its system"
    );
    assert!(error.starts_with(&begin), "{error}");

    let error = refused(&fixture.server.url("postgres")).await;
    assert!(error.ends_with("it is another database of the same server; name the database of the store"), "{error}");
    let error = refused(&fixture.server.url("nowhere")).await;
    assert!(error.starts_with("the read store cannot be used: ") && error.contains("no such database"), "{error}");
    let error = refused("postgres://h/d?sslmode=maybe").await;
    assert!(
        error.starts_with("the read store cannot be used: the store's URL cannot be read: sslmode must be"),
        "{error}"
    );

    // A standby that does not answer yet is accepted.
    let mut standby = fixture.server.standby().await;
    let url = url_at(&fixture, &standby);
    standby.kill().await;
    let store = open(&fixture.url, &url, lag).await.unwrap();
    insert(&store, task()).await;
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    assert_eq!(store.list(filter, None, 10).await.unwrap().tasks.len(), 1);
    assert_eq!(store.read_store_lag(), None);
}

/// A promoted copy has the identity of the store, but not the writes of this node.
#[tokio::test]
async fn a_standby_of_a_copy_is_not_asked() {
    let fixture = Fixture::open().await;
    let mut copy = fixture.server.standby().await;
    copy.promote().await;
    let of_copy = copy.standby().await;
    let store = open(&fixture.url, &url_at(&fixture, &of_copy), Duration::from_hours(1)).await.unwrap();
    record_presence(&store).await;
    insert(&store, task()).await;
    let why = store.standby().unwrap().check(store.leases(), &mut Positions::default()).await.unwrap_err();
    assert_eq!(why.to_string(), "does not show what this node has written");
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    assert_eq!(store.list(filter, None, 10).await.unwrap().tasks.len(), 1);
}

/// The read store's user needs only the right to read the tables.
#[tokio::test]
async fn an_ordinary_user_is_enough() {
    let fixture = Fixture::open().await;
    fixture.sql("CREATE ROLE reader LOGIN").await;
    let standby = fixture.server.standby().await;
    let url = url_at(&fixture, &standby).replace("postgres@", "reader@");
    let store = open(&fixture.url, &url, Duration::from_hours(1)).await.unwrap();
    record_presence(&store).await;
    let lacks_rights = async |reason: &str| {
        eventually(reason, WITHIN, async || {
            let why = store.standby().unwrap().check(store.leases(), &mut Positions::default()).await.unwrap_err();
            let text = why.to_string();
            let is_named = text.contains(reason) && text.contains("lacks rights") && text.contains("GRANT USAGE");
            if is_named { Ok(()) } else { Err(text) }
        })
        .await;
    };
    lacks_rights("relation \"nodes\" does not exist").await;
    fixture.sql("GRANT USAGE ON SCHEMA punctual TO reader").await;
    lacks_rights("permission denied for table nodes").await;
    fixture.sql("GRANT SELECT ON ALL TABLES IN SCHEMA punctual TO reader").await;
    let replicated = Replicated { fixture, standby, store };
    insert(&replicated.store, task()).await;
    replicated.until_asked().await;
    replicated.until_listed(1).await;
    replicated.pause().await;
    insert(&replicated.store, task()).await;
    assert_eq!(replicated.listed().await.len(), 1, "the standby answers");
}
