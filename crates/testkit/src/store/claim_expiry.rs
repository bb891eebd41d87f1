//! `claim` and expired tasks.

use punctual_core::state::State;
use punctual_core::store::{Claim, Claimant};
use punctual_core::trail::Step;

use super::claim::next_due;
use super::{StoreFactory, StoreFixture, dispatcher, fail, ids, worker};
use crate::fixtures::{TENANT, at, task};

/// A due task past its expiry fails instead of being claimed; one whose expiry is ahead is claimed.
pub async fn claim_fails_what_has_expired(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for claimant in [dispatcher(), worker("w")] {
        fails_what_has_expired(&fixture, &claimant).await;
    }
}

async fn fails_what_has_expired(fixture: &StoreFixture<'_>, claimant: &Claimant) {
    let queue = format!("{claimant:?}");
    let now = fixture.now();
    let of = || task().queue(&queue).due(now);
    let stale = fixture.insert_one(of().due(now.plus_millis(-20)).expires_at(now.plus_millis(-10))).await;
    let early = fixture.insert_one(of().expires_at(now.plus_millis(5))).await;
    let good = fixture.insert_one(of().expires_at(now.plus_millis(60_000))).await;
    let never = fixture.insert_one(of()).await;
    let ahead = fixture.insert_one(of().due(now.plus_millis(1_000)).expires_at(now.plus_millis(7))).await;
    fixture.advance(10);
    let lane = stale.lane.id;
    let claim = Claim { lanes: vec![(lane, 10)], limit: 10, claimant: claimant.clone() };
    let claimed = fixture.claim(claim.clone()).await;
    assert_eq!(ids(&claimed.tasks), [good.id, never.id]);
    assert_eq!(claimed.expired, 2);
    assert_eq!(next_due(&claimed)[&lane], Some(ahead.due_at));
    for expired in [&stale, &early] {
        let failed = fixture.get(expired).await;
        assert_eq!((failed.state(), failed.position.version, failed.position.attempts), (State::Failed, 2, 0));
        assert_eq!((failed.completed_at, failed.hold.as_ref()), (Some(now.plus_millis(10)), None));
        let step = failed.trail.last().unwrap();
        assert_eq!((step.version, step.to, step.step.clone()), (2, State::Failed, Step::Expired));
        assert_eq!(step.at, now.plus_millis(10));
    }
    assert_eq!(fixture.get(&ahead).await.state(), State::Pending, "claim fails only due tasks");
    assert!(!fixture.counts().await.contains_key(&(lane, State::Failed)), "failed tasks are history");
    let again = fixture.claim(claim).await;
    assert!(again.tasks.is_empty() && again.expired == 0, "an expired task fails once");
}

/// A claim reaches a task behind any number of expired ones, and takes none of those.
pub async fn claim_gets_past_many_expired_tasks(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let expired = fixture.insert(task().due(at(-100)).expires_at(at(-50)).times(2_500)).await;
    let good = fixture.insert(task().due(at(-10)).times(3)).await;
    let lane = good[0].lane.id;
    let (mut given, mut failed) = (Vec::new(), 0);
    for _ in 0..10_000 {
        let claimed = fixture.claim(Claim { lanes: vec![(lane, 1)], limit: 1, claimant: worker("w") }).await;
        assert!(claimed.tasks.len() <= 1, "over the limit");
        failed += claimed.expired;
        given.extend(ids(&claimed.tasks));
        match next_due(&claimed)[&lane] {
            None => break,
            Some(due) => assert!(
                due <= fixture.now() && claimed.tasks.len() + claimed.expired > 0,
                "a task is due, and a claim neither takes nor fails it"
            ),
        }
    }
    assert_eq!(given, ids(&good));
    assert_eq!(failed, expired.len());
    let states = fixture.store.get(TENANT, ids(&expired)).await.expect("get answers");
    assert!(states.iter().flatten().all(|task| task.state() == State::Failed));
    assert_eq!(states.iter().flatten().count(), expired.len());
}

/// No run begins past the `expires_at`, neither the first nor a retry.
pub async fn claim_fails_a_retry_past_the_expiry(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.running(task().expires_at(at(5_000))).await;
    fixture.apply(&first, fail(&first)).await;
    fixture.advance(10_000);
    assert_eq!(fixture.overdue(Vec::new()).await, [first.id]);
    assert!(fixture.lease(first.lane.id, 1).await.is_empty(), "a retry was claimed past the expiry");
    let failed = fixture.get(&first).await;
    let (at, error) = failed.trail.last_error().expect("it says why");
    assert_eq!((failed.state(), error.code.as_ref(), at), (State::Failed, "expired", fixture.now()));
    assert!(error.message.ends_with("its last error was boom: it bröke 🧨"), "{error:?}");
}
