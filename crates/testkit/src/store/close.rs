//! `check` and `close`.

use std::sync::Arc;

use super::{StoreFactory, StoreFixture, all_of};
use crate::fixtures::{TENANT, at, task};

/// An open store passes `check`, before and after work, and after it was opened again.
pub async fn check_answers_while_open(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    fixture.store.check().await.expect("a fresh store answers");
    fixture.insert_one(task()).await;
    fixture.store.check().await.expect("a used store answers");
    let fixture = fixture.reopen().await;
    fixture.store.check().await.expect("a reopened store answers");
}

/// A closed store has written everything it answered, and refuses further calls instead of hanging
/// or pretending.
pub async fn close_refuses_further_calls(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert_one(task()).await;
    let store = Arc::clone(&fixture.store);
    store.close().await.expect("a store closes");
    assert!(store.check().await.is_err(), "a closed store passes the check");
    assert!(store.insert(vec![task().build()]).await.is_err());
    assert!(store.claim(vec![]).await.is_err() || store.claim(vec![]).await.unwrap().is_empty());
    let lanes = vec![(stored.lane.id, 1)];
    let claim = punctual_core::store::Claim { lanes, limit: 1, claimant: super::dispatcher() };
    assert!(store.claim(vec![claim]).await.is_err());
    let change = fixture.change(&stored, punctual_core::state::Event::Cancel);
    assert!(store.apply(vec![change]).await.is_err());
    assert!(store.get(TENANT, vec![stored.id]).await.is_err());
    assert!(store.list(all_of(TENANT), None, 1).await.is_err());
    assert!(store.heads(None, at(1), 1).await.is_err());
    assert!(store.overdue(vec![], 1).await.is_err());
    assert!(store.counts().await.is_err());
}
