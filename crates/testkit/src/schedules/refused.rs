//! Advances that fail in the middle: at their task, after their records.

use punctual_core::schedules::plan::Origin;
use punctual_core::schedules::{Advance, Advanced, KeyedTrigger, OccurrenceOutcome, PauseSwitch, Record, Schedule};
use punctual_core::store::StoreError;
use punctual_core::task::Idempotency;

use super::made::{done, get, occurrences, record, snapshot, stored};
use super::{MINUTE, advance, fired, of_schedule};
use crate::fixtures::{TENANT, at};
use crate::store::{StoreFactory, StoreFixture, all_of};

/// Writes advances that must fail, and checks that nothing has changed.
async fn fails(fixture: &StoreFixture<'_>, schedules: &[&Schedule], advances: Vec<Advance>) {
    let look = async || {
        let mut seen = Vec::new();
        for schedule in schedules {
            seen.push((snapshot(fixture, schedule).await, occurrences(fixture, schedule).await));
        }
        seen
    };
    let before = look().await;
    let tasks = fixture.list(all_of(TENANT), 10).await.len();
    let counts = fixture.counts().await;
    let failed = fixture.schedules.advance(None, advances).await;
    assert!(failed.as_ref().is_err_and(StoreError::is_retryable), "{failed:?}");
    assert_eq!(look().await, before);
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), tasks);
    assert_eq!(fixture.counts().await, counts);
}

/// No record, counter, next instant, pause or key is changed.
pub async fn an_advance_whose_task_is_refused_leaves_nothing(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut all = Vec::new();
    for name in ["before", "nightly", "behind"] {
        all.push(stored(&fixture, name).await);
    }
    let [before, was, behind] = &all[..] else { panic!("three") };
    let earlier = of_schedule(was, at(-1));
    let waits = vec![fired(at(-1), &earlier), record(at(-2), OccurrenceOutcome::Buffered)];
    done(&fixture, advance(was, waits)).await;
    let was = &get(&fixture, was).await.expect("it is there");

    let made = of_schedule(was, at(0));
    let fires = Advance {
        records: vec![
            record(at(-3), OccurrenceOutcome::Missed),
            Record { waited: true, ..record(at(-2), OccurrenceOutcome::Skipped) },
            fired(at(0), &made),
        ],
        finished: vec![at(-1)],
        next_run_at: Some(at(MINUTE)),
        next_check_at: Some(at(MINUTE)),
        switch: Some(PauseSwitch::Pause("it failed".into())),
        ..advance(was, Vec::new())
    };
    let skips = |schedule: &Schedule| Advance {
        next_run_at: Some(at(MINUTE)),
        ..advance(schedule, vec![record(at(0), OccurrenceOutcome::Skipped)])
    };
    let advances = vec![skips(before), fires.clone(), skips(behind)];
    let by_hand = of_schedule(was, at(7));
    let idempotency = Idempotency::new("k", [7; 32]);
    let asks = |revision| Advance {
        revision,
        trigger: Some(KeyedTrigger {
            tenant: TENANT.to_owned(),
            idempotency: idempotency.clone(),
            instant: at(7),
            task: by_hand.id,
        }),
        ..advance(was, vec![Record { origin: Origin::Manual, ..fired(at(7), &by_hand) }])
    };
    let owner = async || fixture.schedules.key_owner(TENANT, "k").await.expect("it answers");

    fixture.refuse_tasks(true).await;
    // Several times, as a leader retries.
    for _ in 0..3 {
        fails(&fixture, &[before, was, behind], advances.clone()).await;
    }
    fails(&fixture, &[was], vec![asks(was.revision)]).await;
    assert_eq!(owner().await, None, "the key is free");
    // An advance without a task is written.
    done(&fixture, skips(before)).await;
    fixture.refuse_tasks(false).await;

    let advanced = fixture.schedules.advance(None, vec![fires, skips(behind)]).await.unwrap().unwrap();
    assert!(advanced.iter().all(|advanced| matches!(advanced, Advanced::Done { .. })), "{advanced:?}");
    let now = get(&fixture, was).await.expect("it is there");
    assert_eq!((now.revision, now.progress.next_run_at, now.progress.run_count), (3, Some(at(MINUTE)), 2));
    assert_eq!(occurrences(&fixture, was).await.len(), 4);
    assert!(fixture.find(TENANT, made.id).await.is_some());
    done(&fixture, asks(3)).await;
    assert_eq!(owner().await.map(|owner| owner.task), Some(by_hand.id));
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 3);
}
