//! PostgreSQL stops, crashes and freezes under a store, which recovers by itself.

use std::time::{Duration, Instant};

use punctual_core::coordinator::Coordinator;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::State;
use punctual_core::store::{Claim, Claimant, DispatchTo, Start, Store, StoreError};
use punctual_core::task::Task;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{TENANT, task};
use punctual_testkit::postgres::{connect, execute};
use punctual_testkit::proxy::{CutCommit, FaultProxy};

use super::super::PostgresStore;
use super::{Fixture, insert, open};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_store_recovers_when_its_server_comes_back() {
    let mut fixture = Fixture::open().await;
    let stored = fixture.insert(task()).await;
    for crash in [false, true] {
        if crash {
            fixture.server.kill().await;
        } else {
            fixture.server.stop_immediately().await;
        }
        let begun = Instant::now();
        let refused = fixture.store.insert(vec![task().build()]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?} to be refused", begun.elapsed());
        assert!(fixture.store.get(TENANT, vec![stored.id]).await.is_err());
        fixture.server.start_again().await;
        eventually("the store recovers", SOON, async || {
            let written = fixture.store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())?;
            assert_eq!(written.len(), 1);
            fixture.store.check().await.map_err(|fault| fault.to_string())?;
            let found = fixture.store.get(TENANT, vec![stored.id]).await.map_err(|fault| fault.to_string())?;
            assert!(found[0].is_some(), "an acknowledged task is gone");
            Ok(())
        })
        .await;
    }
    fixture.assert_counts().await;
}

/// Soon, and without a wait: the leases are renewed on the same connection.
#[tokio::test]
async fn a_lock_on_the_tasks_fails_the_check() {
    let fixture = Fixture::open().await;
    let locker = connect(&fixture.url).await;
    let locks = [("tasks", "SHARE"), ("tasks", "ACCESS EXCLUSIVE"), ("queue_counts", "SHARE")];
    for (number, (table, mode)) in (1..).zip(locks) {
        let lock = format!("BEGIN; LOCK TABLE punctual.{table} IN {mode} MODE");
        locker.batch_execute(&lock).await.unwrap();
        let begun = Instant::now();
        let (checked, acquired) =
            tokio::join!(fixture.store.check(), fixture.store.acquire("other", NodeId::new(number), 1_000_000),);
        let refused = checked.unwrap_err().to_string();
        assert!(refused.contains("a lock keeps the tasks from being written"), "{refused}: {table} in mode {mode}");
        assert!(begun.elapsed() < Duration::from_secs(4), "it took {:?}", begun.elapsed());
        assert!(acquired.unwrap().is_some() || number > 1, "the lease was free");
        locker.batch_execute("ROLLBACK").await.unwrap();
        fixture.store.check().await.unwrap();
    }
}

#[tokio::test]
async fn calls_to_a_frozen_server_time_out() {
    let fixture = Fixture::open().await;
    let stored = fixture.insert(task()).await;
    fixture.server.freeze().await;
    let begun = Instant::now();
    let (written, read) =
        tokio::join!(fixture.store.insert(vec![task().build()]), fixture.store.get(TENANT, vec![stored.id]));
    assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(begun.elapsed() < Duration::from_secs(25), "they waited for {:?}", begun.elapsed());
    fixture.server.thaw();
    eventually("the store recovers", SOON, async || {
        fixture.store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())?;
        fixture.store.get(TENANT, vec![stored.id]).await.map_err(|fault| fault.to_string())
    })
    .await;
    fixture.assert_counts().await;
}

#[tokio::test]
async fn sessions_that_the_server_ends_are_replaced() {
    let fixture = Fixture::open().await;
    fixture.insert(task()).await;
    for _ in 0..3 {
        fixture.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'punctual'").await;
        eventually("the store recovers", SOON, async || {
            fixture.store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())?;
            fixture.store.counts().await.map_err(|fault| fault.to_string())
        })
        .await;
    }
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_store_closes_without_its_server() {
    let mut fixture = Fixture::open().await;
    fixture.insert(task()).await;
    fixture.server.kill().await;
    let closed = tokio::time::timeout(SOON, Store::close(&fixture.store)).await;
    assert!(closed.is_ok(), "it waits for a server that is gone");
}

/// The store notices lost connections before the next call needs one.
#[tokio::test]
async fn a_restart_in_a_quiet_time_fails_no_call() {
    let mut fixture = Fixture::open().await;
    for _ in 0..16 {
        fixture.insert(task()).await;
    }
    fixture.server.stop_immediately().await;
    fixture.server.start_again().await;
    for number in 0..16 {
        let written = fixture.store.insert(vec![task().build()]).await;
        assert!(written.is_ok(), "call {number}: {written:?}");
    }
}

async fn task_of(fixture: &Fixture, id: TaskId) -> Task {
    fixture.store.get(TENANT, vec![id]).await.unwrap().remove(0).unwrap()
}

/// Waits until a task is pending again, with no hold and no attempt counted.
async fn until_given_back(fixture: &Fixture, id: TaskId) {
    eventually("it is given back", SOON, async || {
        let task = task_of(fixture, id).await;
        let is_free = task.state() == State::Pending && task.position.attempts == 0 && task.hold.is_none();
        if is_free { Ok(()) } else { Err(format!("{:?}", task.position)) }
    })
    .await;
}

async fn claim(store: &PostgresStore, task: &Task, claimant: Claimant) -> Result<Task, StoreError> {
    let claim = Claim { lanes: vec![(task.lane.id, 1)], limit: 1, claimant };
    Ok(store.claim(vec![claim]).await?.remove(0).tasks.remove(0))
}

/// No caller got the tasks, so no worker runs them, whatever their rows say.
#[tokio::test]
async fn tasks_of_an_unanswered_commit_are_given_back() {
    let fixture = Fixture::open().await;
    let proxy = FaultProxy::before_postgres(fixture.server.address());
    let store = open(&proxy.through(&fixture.url), NodeId::new(8)).await;
    let task = fixture.insert(task()).await;
    let dispatch =
        || Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: 300_000 }, terms: Vec::new(), from: None };
    let worker = Claimant::Worker { name: "w".into(), lease_millis: 300_000, due_by: None };
    for (claimant, state) in [(dispatch(), State::Queued), (worker, State::Running)] {
        proxy.cut_next_commit(CutCommit::After);
        let answer = claim(&store, &task, claimant).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        assert_eq!(task_of(&fixture, task.id).await.state(), state, "it was committed");
        until_given_back(&fixture, task.id).await;
    }
    let queued = claim(&store, &task, dispatch()).await.unwrap();
    let start = Start { id: queued.id, version: queued.position.version, worker: "w".into(), grace_millis: 300_000 };
    proxy.cut_next_commit(CutCommit::After);
    let answer = store.start(vec![start]).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert_eq!(task_of(&fixture, task.id).await.state(), State::Running, "it was committed");
    until_given_back(&fixture, task.id).await;
    fixture.assert_counts().await;
}

/// A task that another worker holds by now is not given back.
#[tokio::test]
async fn a_claim_that_failed_to_commit_gives_nothing_back() {
    let fixture = Fixture::open().await;
    let proxy = FaultProxy::before_postgres(fixture.server.address());
    let store = open(&proxy.through(&fixture.url), NodeId::new(8)).await;
    let (first, other) = (fixture.insert(task()).await, fixture.insert(task().queue("other")).await);
    let worker = |lease_millis| Claimant::Worker { name: "w".into(), lease_millis, due_by: None };
    proxy.cut_next_commit(CutCommit::Before);
    assert!(claim(&store, &first, worker(300_000)).await.is_err());
    let held = eventually("its rows are free", SOON, async || {
        let held = fixture.lease(&first, 1).await.pop();
        held.ok_or_else(|| "nothing to lease".to_owned())
    })
    .await;
    assert_eq!(held.id, first.id);
    // Once this task is given back, the first one has been polled too.
    proxy.cut_next_commit(CutCommit::After);
    assert!(claim(&store, &other, worker(300_000)).await.is_err());
    until_given_back(&fixture, other.id).await;
    assert_eq!(task_of(&fixture, first.id).await.position, held.position);
}

#[tokio::test]
async fn an_old_primary_that_comes_back_is_not_written_to() {
    let mut fixture = Fixture::open().await;
    let mut standby = fixture.server.standby().await;
    let database = fixture.url.rsplit('/').next().unwrap();
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{database}?target_session_attrs=read-write",
        fixture.server.port(),
        standby.port()
    );
    let store = open(&both, NodeId::new(9)).await;
    let stored = insert(&store, task()).await;
    let there = standby.url(database);
    eventually("the standby has it", SOON, async || {
        let rows = execute(&there, "SELECT id FROM punctual.tasks").await;
        if rows.len() == 1 { Ok(()) } else { Err(format!("{rows:?}")) }
    })
    .await;
    fixture.server.stop_immediately().await;
    standby.promote().await;
    eventually("the store recovers", SOON, async || {
        store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())
    })
    .await;
    fixture.server.start_again().await;
    for _ in 0..5 {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'punctual%'";
        execute(&there, end).await;
        eventually("the store recovers", SOON, async || {
            store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())?;
            store.check().await.map_err(|fault| fault.to_string())
        })
        .await;
    }
    let left = fixture.sql("SELECT id FROM tasks").await;
    assert_eq!(left, [[Some(stored.id.uuid().to_string())]], "the old primary was written to");
}
