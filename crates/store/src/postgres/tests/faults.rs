//! PostgreSQL stops, crashes and freezes under a store, which goes on by itself.

use std::time::{Duration, Instant};

use punctual_core::store::{Store, StoreError};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{TENANT, task};

use super::Fixture;

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_store_goes_on_when_its_server_comes_back() {
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
        eventually("the store goes on", SOON, async || {
            let written = fixture.store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())?;
            assert_eq!(written.len(), 1);
            fixture.store.check().await.map_err(|fault| fault.to_string())?;
            let found = fixture.store.get(TENANT, vec![stored.id]).await.map_err(|fault| fault.to_string())?;
            assert!(found[0].is_some(), "what was acknowledged is gone");
            Ok(())
        })
        .await;
    }
    fixture.assert_counts().await;
}

/// Nobody waits for ever: who is in line is told after a while, and others are told at once when it is full.
#[tokio::test]
async fn a_frozen_server_answers_nobody_and_holds_up_nobody() {
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
    eventually("the store goes on", SOON, async || {
        fixture.store.insert(vec![task().build()]).await.map_err(|fault| fault.to_string())?;
        fixture.store.get(TENANT, vec![stored.id]).await.map_err(|fault| fault.to_string())
    })
    .await;
    fixture.assert_counts().await;
}

/// A session that is ended by the server in the middle of things is replaced.
#[tokio::test]
async fn sessions_that_are_ended_are_replaced() {
    let fixture = Fixture::open().await;
    fixture.insert(task()).await;
    for _ in 0..3 {
        fixture.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'punctual'").await;
        eventually("the store goes on", SOON, async || {
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
