//! Runs that were triggered under a key, edits within an advance, and what counts as a run.

use punctual_core::ids::TaskId;
use punctual_core::schedules::plan::Origin;
use punctual_core::schedules::{
    Advance, Advanced, KeyOwner, KeyedTrigger, OccurrenceOutcome, PauseSwitch, Promise, Record, Schedule,
    SchedulePause, ScheduleSnapshot,
};
use punctual_core::store::Inserted;
use punctual_core::task::Idempotency;
use punctual_core::time::Timestamp;

use super::made::{done, get, lost, occurrences, record, replace, snapshot, stored};
use super::{advance, fired, of_schedule};
use crate::fixtures::{TENANT, at, json, task};
use crate::store::{StoreFactory, StoreFixture, all_of};

const DIGEST: [u8; 32] = [7; 32];

fn keyed(key: &str, instant: Timestamp, task: TaskId) -> KeyedTrigger {
    let idempotency = Idempotency::new(key, DIGEST);
    KeyedTrigger { tenant: TENANT.to_owned(), idempotency, instant, task }
}

async fn owner(fixture: &StoreFixture<'_>, key: &str) -> Option<KeyOwner> {
    fixture.schedules.key_owner(TENANT, key).await.unwrap()
}

fn waits(instant: Timestamp) -> Record {
    Record { origin: Origin::Manual, ..record(instant, OccurrenceOutcome::Buffered) }
}

/// A backfilled run is not counted; runs of other origins are.
pub async fn a_backfill_does_not_count_as_a_run(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let of = |instant, origin| Record { origin, ..fired(instant, &of_schedule(&was, instant)) };
    let records = vec![of(at(0), Origin::Due), of(at(1), Origin::Manual), of(at(2), Origin::Backfill)];
    assert_eq!(done(&fixture, advance(&was, records)).await.len(), 3);
    let progress = get(&fixture, &was).await.unwrap().progress;
    assert_eq!((progress.run_count, progress.last_run_at), (2, Some(at(1))));
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 3);
}

/// A key that a task or schedule has used is refused; another tenant may use it. A lost advance
/// leaves nothing.
pub async fn a_key_triggers_one_run(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (was, other) = (stored(&fixture, "nightly").await, stored(&fixture, "other").await);
    assert_eq!(owner(&fixture, "k").await, None);
    let made = of_schedule(&was, at(0));
    let first = Advance { trigger: Some(keyed("k", at(0), made.id)), ..advance(&was, vec![fired(at(0), &made)]) };
    assert_eq!(done(&fixture, first).await, [at(0)]);
    assert_eq!(owner(&fixture, "k").await, Some(KeyOwner { task: made.id, fingerprint: DIGEST }));
    assert_eq!(fixture.schedules.key_owner("other", "k").await.unwrap(), None);

    let late = of_schedule(&other, at(5));
    lost(&fixture, Advance { trigger: Some(keyed("k", at(5), late.id)), ..advance(&other, vec![fired(at(5), &late)]) })
        .await;
    assert_eq!(get(&fixture, &other).await.as_ref(), Some(&other));
    assert_eq!((occurrences(&fixture, &other).await, fixture.list(all_of(TENANT), 10).await.len()), (vec![], 1));
    let submitted = fixture.store.insert(vec![task().key("k", 1).build()]).await.unwrap().remove(0);
    assert!(matches!(submitted, Inserted::KeyReused(id) if id == made.id), "{submitted:?}");

    let taken =
        Advance { revision: 2, trigger: Some(keyed("l", at(0), late.id)), ..advance(&was, vec![fired(at(0), &late)]) };
    assert_eq!(done(&fixture, taken).await, [], "its instant has a record");
    assert_eq!(owner(&fixture, "l").await, None, "and its key is free");
}

/// The task does not exist until then, and no waiting lane is returned.
pub async fn a_waiting_occurrence_knows_the_task_of_its_key(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let (one, two) = (of_schedule(&was, at(0)), of_schedule(&was, at(1)));
    let asks = Advance { trigger: Some(keyed("k", at(0), one.id)), ..advance(&was, vec![waits(at(0))]) };
    assert_eq!(done(&fixture, asks).await, [at(0)]);
    let asks = Advance {
        revision: 2,
        trigger: Some(keyed("l", at(1), two.id)),
        ..advance(&was, vec![waits(at(1)), waits(at(2))])
    };
    assert_eq!(done(&fixture, asks).await, [at(1), at(2)]);
    let now: ScheduleSnapshot = snapshot(&fixture, &was).await;
    let promise = |key: &str, instant, task| Promise { instant, task, key: Some(key.to_owned()) };
    assert_eq!((now.buffered.len(), now.promised), (3, vec![promise("k", at(0), one.id), promise("l", at(1), two.id)]));
    assert!(occurrences(&fixture, &was).await.iter().all(|found| found.task.is_none() && found.detail.is_none()));

    let after = vec![
        Record { waited: true, origin: Origin::Manual, ..fired(at(0), &one) },
        Record { waited: true, origin: Origin::Manual, ..record(at(1), OccurrenceOutcome::Skipped) },
    ];
    done(&fixture, Advance { revision: 3, ..advance(&was, after) }).await;
    assert_eq!(snapshot(&fixture, &was).await.promised, []);
    let found: Vec<_> = occurrences(&fixture, &was).await.iter().map(|found| (found.outcome, found.task)).collect();
    assert_eq!(
        found,
        [
            (OccurrenceOutcome::Buffered, None),
            (OccurrenceOutcome::Skipped, None),
            (OccurrenceOutcome::Fired, Some(one.id))
        ],
        "from the newest"
    );
    assert_eq!(owner(&fixture, "k").await.map(|owner| owner.task), Some(one.id));
}

/// The edit and the records are written together or not at all.
pub async fn an_advance_edits_in_the_same_write(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (mut was, other) = (stored(&fixture, "nightly").await, stored(&fixture, "other").await);
    was.set_pause(Some(SchedulePause { at: at(1), reason: None }));
    replace(&fixture, &was).await;
    let was = get(&fixture, &was).await.unwrap();
    let edited = |name: &str| {
        let mut edited = Schedule { name: name.to_owned(), ..was.clone() };
        edited.definition.task = json(r#"{"type":"u"}"#);
        edited.set_pause(None);
        Some(Box::new(edited))
    };
    let goes_on = |name: &str| Advance {
        edited: edited(name),
        switch: Some(PauseSwitch::Resume),
        now: at(9),
        ..advance(&was, vec![record(at(0), OccurrenceOutcome::Skipped)])
    };
    let advanced = fixture.schedules.advance(None, vec![goes_on("other")]).await.unwrap().unwrap().remove(0);
    assert!(matches!(advanced, Advanced::NameTaken), "{advanced:?}");
    assert_eq!((get(&fixture, &was).await, get(&fixture, &other).await), (Some(was.clone()), Some(other)));
    assert_eq!(occurrences(&fixture, &was).await, []);

    assert_eq!(done(&fixture, goes_on("weekly")).await, [at(0)]);
    let now = get(&fixture, &was).await.unwrap();
    assert_eq!((now.name.as_str(), now.version, now.updated_at), ("weekly", was.version + 1, at(9)));
    assert_eq!((now.pause.clone(), now.definition.task.get()), (None, r#"{"type":"u"}"#));
    lost(&fixture, goes_on("yearly")).await;
    assert_eq!(get(&fixture, &was).await, Some(now));
}
