//! `heads`: the lanes that the dispatcher's sweep reads.

use std::collections::BTreeMap;

use punctual_core::lane::LaneId;
use punctual_core::state::Event;
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;

use super::{StoreFactory, StoreFixture, complete, fail};
use crate::fixtures::{Dice, START, at, task};

/// Pages list each lane with a waiting task due before the instant once, by number, with its first
/// due instant.
pub async fn heads_pages_every_lane_due_before(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut dice = Dice::new(3);
    let mut batch: Vec<NewTask> = Vec::new();
    for lane in 0..500_usize {
        let of = task()
            .tenant(&format!("t{}", lane % 5))
            .queue(&format!("q{lane}"))
            .priority(u8::try_from(lane % 10).unwrap());
        let of = if lane % 3 == 0 { of.push(&format!("https://h{lane}.test:443")) } else { of };
        for _ in 0..8 {
            batch.push(of.clone().due(at(i64::try_from(dice.below(1_000_000)).unwrap() - 1_000)).build());
        }
    }
    dice.shuffle(&mut batch);
    let stored = fixture.insert(batch).await;
    let mut first: BTreeMap<LaneId, (Timestamp, &punctual_core::lane::LaneKey)> = BTreeMap::new();
    for task in &stored {
        let head = first.entry(task.lane.id).or_insert((task.due_at, &task.lane.key));
        head.0 = head.0.min(task.due_at);
    }
    assert_eq!(first.len(), 500);
    let some_due = first.values().nth(250).unwrap().0;
    for before in [at(-2_000), START, at(50_000), some_due, some_due.plus_millis(1), at(2_000_000), Timestamp::MAX] {
        let expected: Vec<_> = first
            .iter()
            .filter(|(_, (due, _))| *due < before)
            .map(|(lane, (due, key))| (*lane, (*key).clone(), *due))
            .collect();
        for page in [1_000, 37] {
            assert_eq!(fixture.heads(before, page).await, expected, "before {before}, pages of {page}");
        }
    }
    let one_by_one: Vec<LaneId> = fixture.heads(at(2_000_000), 1).await.into_iter().map(|(lane, ..)| lane).collect();
    assert!(one_by_one.iter().eq(first.keys()));
}

/// A head is the first waiting task: claims, give-backs, failures, edits, cancels and re-drives
/// move it.
pub async fn heads_follow_every_change(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(task()).await;
    let second = fixture.insert_one(task().due(at(100))).await;
    let lane = first.lane.id;
    let head = async || {
        let heads = fixture.heads(at(1_000_000), 10).await;
        assert!(heads.len() <= 1, "{heads:?}");
        heads.first().map(|(of, _, due)| {
            assert_eq!(*of, lane);
            *due
        })
    };
    assert_eq!(head().await, Some(START));
    let queued = fixture.dispatch(lane, 1).await.pop().unwrap();
    assert_eq!(head().await, Some(at(100)), "a queued task does not wait");
    let given_back = fixture.apply(&queued, Event::GiveBack(at(50))).await;
    assert_eq!(head().await, Some(at(50)));
    fixture.apply(&given_back, Event::RunNow).await;
    assert_eq!(head().await, Some(START));
    let running = fixture.lease(lane, 1).await.pop().unwrap();
    fixture.apply(&second, Event::Cancel).await;
    assert_eq!(head().await, None, "neither a running nor a cancelled task waits");
    let failed = fixture.apply(&running, fail(&running)).await;
    assert_eq!(head().await, Some(at(1_000)));
    fixture.apply(&failed, Event::Cancel).await;
    assert_eq!(head().await, None);
    let dead = fixture.running(task()).await;
    let dead = fixture.apply(&dead, super::fail_for_good(&dead)).await;
    assert_eq!(head().await, None);
    fixture.advance(7);
    fixture.apply(&dead, Event::Redrive(None)).await;
    assert_eq!(head().await, Some(at(7)));
    let running = fixture.lease(lane, 1).await.pop().unwrap();
    fixture.apply(&running, complete(None)).await;
    assert_eq!(head().await, None);
    fixture.insert_one(task().due(Timestamp::MAX)).await;
    assert_eq!(head().await, None, "a task that is due later is no head");
}
