//! How fast tasks of a queue may start.

use punctual_core::lane::LaneId;
use punctual_core::queues::{RateLimit, Settings};
use punctual_core::store::LimitKind;

use super::{claim, held, mail, put};
use crate::store::{StoreFactory, StoreFixture};

async fn rate(fixture: &StoreFixture<'_>, per_second: f64, burst: u32) {
    let rate_limit = Some(RateLimit { per_second, burst });
    put(fixture, Settings { rate_limit, ..Settings::default() }).await;
}

/// How many tasks a claim takes now, and in how many milliseconds the next claim is worthwhile.
async fn now(fixture: &StoreFixture<'_>, lanes: &[LaneId]) -> (usize, Option<i64>) {
    let claimed = claim(fixture, lanes).await;
    let found = held(&claimed);
    let wait = |(lane, by, until): &(LaneId, LimitKind, Option<_>)| {
        assert_eq!((*lane, *by), (lanes[0], LimitKind::Rate));
        until.map(|until: punctual_core::time::Timestamp| until.millis_since(fixture.now()))
    };
    (claimed.tasks.len(), found.first().and_then(wait))
}

/// Tokens flow in by the store's clock. All lanes of the queue share them.
pub async fn no_more_are_taken_than_there_are_tokens(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert(mail().times(90)).await[0].lane.id;
    let second = fixture.insert(mail().kind("other").times(90)).await[0].lane.id;
    let lanes = [first, second];
    rate(&fixture, 10.0, 3).await;
    assert_eq!(now(&fixture, &lanes).await, (3, Some(100)));
    assert_eq!(now(&fixture, &lanes).await, (0, Some(100)));
    fixture.advance(99);
    assert_eq!(now(&fixture, &lanes).await, (0, Some(1)));
    fixture.advance(1);
    assert_eq!(now(&fixture, &[second]).await, (1, Some(100)));
    fixture.advance(250);
    assert_eq!(now(&fixture, &lanes).await, (2, Some(50)));
    // However long nothing was claimed, only the burst is there.
    fixture.advance(3_600_000);
    assert_eq!(now(&fixture, &lanes).await.0, 3);

    rate(&fixture, 1_000.0, 1).await;
    let mut taken = 0;
    for _ in 0..10 {
        let (tasks, wait) = now(&fixture, &lanes).await;
        taken += tasks;
        fixture.advance(u64::try_from(wait.unwrap_or(0)).expect("not in the past"));
    }
    assert!((90..=101).contains(&taken), "{taken} in a tenth of a second, a few at a time");
    // A queue without a limit is not held back.
    put(&fixture, Settings::default()).await;
    assert_eq!(now(&fixture, &[second]).await.1, None);
}

/// A restart does not empty the bucket either.
pub async fn tokens_outlive_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert(mail().times(90)).await[0].lane.id;
    rate(&fixture, 1.0, 5).await;
    assert_eq!(now(&fixture, &[lane]).await.0, 5);
    fixture.advance(500);
    let fixture = fixture.reopen().await;
    assert_eq!(now(&fixture, &[lane]).await, (0, Some(500)));
    fixture.advance(1_500);
    let fixture = fixture.reopen().await;
    assert_eq!(now(&fixture, &[lane]).await.0, 2);
    rate(&fixture, 1.0, 50).await;
    assert_eq!(now(&fixture, &[lane]).await.0, 0, "another burst does not fill the bucket");
}
