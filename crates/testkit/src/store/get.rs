//! `get`: which tasks a tenant can read, and the order of answers.

use std::collections::BTreeSet;

use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::state::{Event, State};
use punctual_core::store::TaskResult;

use super::{RowDamage, StoreFactory, StoreFixture, assert_same, complete, fail_for_good, ids};
use crate::fixtures::{Dice, TENANT, task};

/// An id of another tenant counts as one that does not exist, whether live or final.
pub async fn get_is_bound_to_the_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tenants = ["acme", "ACME", "acme ", "acm", "", "ácme", "acme'--"];
    for tenant in tenants {
        let live = fixture.insert_one(task().tenant(tenant).queue("live")).await;
        let done = fixture.running(task().tenant(tenant).queue("done")).await;
        let done = fixture.apply(&done, complete(None)).await;
        for reader in tenants {
            let answers = fixture.store.get(reader, vec![live.id, done.id]).await.expect("get answers");
            if reader == tenant {
                assert_same(answers[0].as_ref().expect("it is its own"), &live);
                assert_same(answers[1].as_ref().expect("it is its own"), &done);
            } else {
                assert!(answers.iter().all(Option::is_none), "{reader:?} reads a task of {tenant:?}");
            }
        }
    }
}

/// It cannot be claimed, and its tenant is unknown. The other tasks are answered and claimed.
pub async fn get_quarantines_a_row_without_its_lane(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(3)).await;
    fixture.damage(RowDamage::TaskLane(stored[1].id)).await;
    for asked in [vec![stored[1].id], ids(&stored)] {
        let answers = fixture.store.get(TENANT, asked.clone()).await.expect("get answers");
        let expected: Vec<bool> = asked.iter().map(|id| *id != stored[1].id).collect();
        assert_eq!(answers.iter().map(Option::is_some).collect::<Vec<_>>(), expected);
        assert_eq!(fixture.store.quarantined().await.expect("it answers"), 1);
    }
    assert_eq!(ids(&fixture.lease(stored[0].lane.id, 3).await), [stored[0].id, stored[2].id]);
}

/// Of all tenants, whatever final state a task is in.
pub async fn live_names_the_tasks_that_have_not_finished(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let waiting = fixture.insert_one(task().queue("waiting")).await;
    let foreign = fixture.insert_one(task().tenant("other")).await;
    let cancelled = fixture.insert_one(task().queue("cancelled")).await;
    let cancelled = fixture.apply(&cancelled, Event::Cancel).await;
    let running = fixture.running(task().queue("running")).await;
    let all = [&waiting, &foreign, &cancelled, &running].map(|task| task.id);
    let live = async || {
        let asked = all.into_iter().chain([TaskId::new()]).collect();
        fixture.store.live(asked).await.expect("it answers").into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(live().await, BTreeSet::from([waiting.id, foreign.id, running.id]));
    let letter = fixture.apply(&running, fail_for_good(&running)).await;
    assert_eq!(live().await, BTreeSet::from([waiting.id, foreign.id]));
    fixture.apply(&letter, Event::Redrive(None)).await;
    assert!(live().await.contains(&letter.id));
}

/// In the order of the ids, and of any tenant.
pub async fn results_end_before_what_has_no_room(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (mut ids, mut expected) = (Vec::new(), Vec::new());
    let texts = [r#""aaaaaaaa""#, r#"{"a": [1.50]}"#, r#""cc""#];
    for (place, text) in texts.into_iter().enumerate() {
        let running = fixture.running(task().tenant(&format!("tenant{place}"))).await;
        fixture.apply(&running, complete(Some(text))).await;
        ids.push(running.id);
        let result = Some(Json::parse(text).expect("JSON"));
        expected.push(Some(TaskResult { state: State::Completed, result }));
    }
    let waiting = fixture.insert_one(task()).await;
    let failed = fixture.running(task().queue("failed")).await;
    let failed = fixture.apply(&failed, fail_for_good(&failed)).await;
    ids.extend([waiting.id, TaskId::new(), failed.id, ids[0]]);
    let without = |state| Some(TaskResult { state, result: None });
    expected.extend([without(State::Pending), None, without(State::DeadLettered), expected[0].clone()]);
    let read = async |bytes| fixture.store.results(ids.clone(), bytes).await.expect("it answers");
    let all: usize = texts.iter().map(|text| text.len()).sum::<usize>() + texts[0].len();
    assert_eq!(read(all).await, expected);
    assert_eq!(read(all - 1).await, expected[..6], "the last result has no room");
    assert_eq!(read(texts[0].len() + texts[1].len()).await, expected[..2]);
    assert_eq!(read(texts[0].len() - 1).await, []);
    assert_eq!(fixture.store.results(Vec::new(), 0).await.expect("it answers"), []);
}

/// Live, final, foreign, unknown and repeated ids are each answered in order.
pub async fn get_answers_in_order(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut own = fixture.insert(task().times(400)).await;
    for done in fixture.lease(own[0].lane.id, 200).await {
        fixture.apply(&done, complete(None)).await;
    }
    let foreign = fixture.insert(task().tenant("other").times(50)).await;
    own.truncate(300);
    let mut wanted: Vec<TaskId> = own.iter().chain(&own[150..250]).chain(&foreign).map(|task| task.id).collect();
    wanted.extend((0..50).map(|_| TaskId::new()));
    Dice::new(2).shuffle(&mut wanted);
    let answers = fixture.store.get(TENANT, wanted.clone()).await.expect("get answers");
    assert_eq!(answers.len(), wanted.len());
    for (answer, id) in answers.iter().zip(wanted) {
        let is_own = own.iter().any(|task| task.id == id);
        assert_eq!(answer.as_ref().map(|task| task.id), is_own.then_some(id));
    }
}
