//! The version of a task, which is the fencing token of its runs: it only grows.

use punctual_core::ids::TaskId;
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{Change, Event, Position, State, transition};

use super::{StoreFactory, StoreFixture, complete, fail, fail_for_good, fail_under_breaker, is_done};
use crate::fixtures::{retry_policy, task};

/// Over many claims, give-backs, failures and re-drives every token is greater than all before, and
/// the trail has no gap. Attempts count the claims that were neither given back nor failed under a
/// breaker.
pub async fn tokens_only_grow(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let policy = RetryPolicy { max_retries: 1_000, backoff_millis: 1, ..retry_policy() };
    let stored = fixture.insert_one(task().retry_policy(policy)).await;
    let (mut token, mut attempts) = (0, 0);
    for round in 0..40 {
        let running = if round % 3 == 0 {
            let queued = fixture.dispatch(stored.lane.id, 1).await.pop().expect("it is due");
            assert!(queued.position.version > token);
            fixture.start(queued.id, queued.position.version).await.expect("it is queued")
        } else {
            fixture.lease(stored.lane.id, 1).await.pop().expect("it is due")
        };
        assert!(running.position.version > token, "a token did not grow in round {round}");
        token = running.position.version;
        attempts += 1;
        assert_eq!(running.position.attempts, attempts);
        let waiting = match round % 4 {
            0 => fixture.apply(&running, Event::GiveBack(fixture.now())).await,
            1 => {
                let dead = fixture.apply(&running, fail_for_good(&running)).await;
                assert_eq!((dead.state(), dead.position.attempts), (State::DeadLettered, attempts));
                attempts = 0;
                fixture.apply(&dead, Event::Redrive(None)).await
            }
            2 => fixture.apply(&running, fail_under_breaker(&running)).await,
            _ => fixture.apply(&running, fail(&running)).await,
        };
        attempts -= u32::from(round % 2 == 0);
        assert_eq!((waiting.state(), waiting.position.attempts), (State::Pending, attempts));
        assert!(waiting.position.version > token);
        let versions: Vec<u64> = waiting.trail.entries().map(|entry| entry.version).collect();
        assert!(versions.iter().copied().eq(1..=waiting.position.version), "the trail has a gap: {versions:?}");
        // A failure under a breaker waits at least a second.
        fixture.advance(1_000);
    }
}

/// A version that a 32-bit number or a double cannot represent exactly is kept and compared
/// exactly.
pub async fn versions_beyond_32_bits_are_kept(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for (number, base) in [(1_u64 << 32) - 1, (1 << 53) + 1, u64::MAX / 2 - 100].into_iter().enumerate() {
        let stored = fixture.insert_one(task().queue(&number.to_string())).await;
        // As after `base` steps, which would take too long.
        let far = Position { version: base, ..stored.position };
        let jump = transition(&far, Event::RunNow, &fixture.by()).expect("it waits");
        let jump = jump.forged(|fields| fields.expected_version = stored.position.version);
        assert!(is_done(&fixture.apply_change((stored.id, jump)).await));

        let queued = fixture.dispatch(stored.lane.id, 1).await.pop().expect("it is due");
        assert_eq!(queued.position.version, base + 2);
        assert!(fixture.start(queued.id, base + 1).await.is_none(), "a version that differs by one was accepted");
        let running = fixture.start(queued.id, base + 2).await.expect("it is queued");
        assert_eq!(running.position.version, base + 3);
        assert!(
            fixture.beat(&running, base + 2, None, None).await.is_none(),
            "a token that differs by one was accepted"
        );
        assert!(fixture.beat(&running, base + 3, None, None).await.is_some());
        let done: (TaskId, Change) = fixture.change(&running, complete(None));
        let stale = done.1.clone().forged(|fields| fields.expected_version = base + 2);
        assert!(
            !is_done(&fixture.apply_change((stored.id, stale)).await),
            "a change of a version that differs by one was applied"
        );
        assert!(is_done(&fixture.apply_change(done).await));
        assert_eq!(fixture.get(&stored).await.position.version, base + 4);
    }
}
