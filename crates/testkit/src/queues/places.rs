//! How many tasks of a queue run at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use punctual_core::queues::Settings;
use punctual_core::state::Event;
use punctual_core::store::{Claim, LimitKind};
use punctual_core::task::Task;
use tokio::task::JoinSet;

use super::{change, claim, held, limit, mail, pause, put, taken};
use crate::store::{StoreFactory, StoreFixture, complete, dispatcher, fail, is_done, worker};
use punctual_core::queues::QueueChange;

/// How long a task is held in the test with many claimants.
const RUNS: Duration = Duration::from_millis(2);

/// Queued or running, in all lanes together and by any claimant, also under concurrent claims.
pub async fn no_more_run_at_once_than_the_limit(factory: &dyn StoreFactory) {
    const MOST: i64 = 5;
    let fixture = StoreFixture::open(factory).await;
    let pulled = fixture.insert(mail().times(100)).await[0].lane.id;
    let other = fixture.insert(mail().kind("other").times(100)).await[0].lane.id;
    let pushed = fixture.insert(mail().push("http://127.0.0.1:9").times(100)).await[0].lane.id;
    limit(&fixture, 5).await;
    let claimed = claim(&fixture, &[pulled, other]).await;
    assert_eq!(claimed.tasks.len(), 5);
    assert_eq!(held(&claimed), [(pulled, LimitKind::Concurrency, None), (other, LimitKind::Concurrency, None)]);
    assert_eq!(fixture.dispatch(pushed, 10).await.len(), 0);
    for task in &claimed.tasks[..2] {
        fixture.apply(task, complete(None)).await;
    }
    let claims = [pulled, other].map(|lane| Claim { lanes: vec![(lane, 9)], limit: 9, claimant: worker("w") });
    let answers = fixture.store.claim(claims.to_vec()).await.expect("claim answers");
    assert_eq!(answers.iter().map(|answer| answer.tasks.len()).collect::<Vec<_>>(), [2, 0]);
    for task in claimed.tasks[2..].iter().chain(&answers[0].tasks) {
        fixture.apply(task, complete(None)).await;
    }

    let (now_running, most_running) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut claimers = JoinSet::new();
    for (number, lane) in [pulled, other, pushed, pulled, pushed, other].into_iter().enumerate() {
        let (store, now_running, most_running) =
            (Arc::clone(&fixture.store), Arc::clone(&now_running), Arc::clone(&most_running));
        let by = fixture.by();
        claimers.spawn(async move {
            let mut rounds = 0..60;
            // On until all places were seen taken at once, however slow the machine is.
            while rounds.next().is_some() || most_running.load(Ordering::SeqCst) < MOST {
                let claimant = if lane == pushed { dispatcher() } else { worker(&format!("w{number}")) };
                let claim = Claim { lanes: vec![(lane, 3)], limit: 3, claimant };
                let tasks = store.claim(vec![claim]).await.expect("claim answers").remove(0).tasks;
                let count = i64::try_from(tasks.len()).expect("a few");
                // Counted after the claim and, below, uncounted just before it is given back, so
                // the test never counts too many.
                let running = now_running.fetch_add(count, Ordering::SeqCst) + count;
                most_running.fetch_max(running, Ordering::SeqCst);
                // The others claim meanwhile.
                tokio::time::sleep(RUNS).await;
                for task in tasks {
                    let back = punctual_core::state::transition(&task.position, Event::GiveBack(by.now), &by);
                    now_running.fetch_sub(1, Ordering::SeqCst);
                    let applied = store.apply(vec![(task.id, back.expect("a held task is given back"))]).await;
                    assert!(is_done(&applied.expect("apply answers")[0]));
                }
            }
        });
    }
    while let Some(done) = claimers.join_next().await {
        done.expect("no claimer fails");
    }
    let most = most_running.load(Ordering::SeqCst);
    assert_eq!(most, MOST, "at once");
    assert_eq!(claim(&fixture, &[pulled]).await.tasks.len(), 5, "every place is free again");
}

/// Completed, failed with a retry, given back, taken back after its hold ran out, cancelled,
/// expired unstarted.
pub async fn a_place_is_free_again_however_its_task_leaves(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert(mail().times(20)).await[0].lane.id;
    limit(&fixture, 1).await;
    let next = async || {
        let mut tasks = taken(&fixture, lane).await;
        assert_eq!(tasks.len(), 1, "there is one place");
        assert_eq!(taken(&fixture, lane).await.len(), 0, "and it is taken");
        tasks.remove(0)
    };
    let leave = async |task: &Task, event: Event<'_>| drop(fixture.apply(task, event).await);
    let task = next().await;
    leave(&task, complete(None)).await;
    let task = next().await;
    leave(&task, fail(&task)).await;
    let task = next().await;
    leave(&task, Event::GiveBack(fixture.now())).await;
    let task = next().await;
    let asked = fixture.apply(&task, Event::Cancel).await;
    assert_eq!(taken(&fixture, lane).await.len(), 0, "it runs until it has stopped");
    leave(&asked, Event::Stopped).await;
    next().await;
    // Its worker is lost. The test takes it back when its hold has run out, as the reaper does.
    fixture.advance(crate::store::LEASE_MILLIS);
    let lost = fixture.store.overdue(Vec::new(), 10).await.expect("overdue answers").remove(0);
    leave(&lost, fail(&lost)).await;
    let queued = fixture.dispatch(lane, 5).await;
    assert_eq!(queued.len(), 1);
    assert_eq!(taken(&fixture, lane).await.len(), 0);
    leave(&queued[0], Event::Cancel).await;
    let fixture = fixture.reopen().await;
    let task = fixture.lease(lane, 5).await;
    assert_eq!(task.len(), 1);
    let fixture = fixture.reopen().await;
    assert_eq!(taken(&fixture, lane).await.len(), 0, "a restart frees nothing");
    fixture.apply(&task[0], complete(None)).await;
    assert_eq!(taken(&fixture, lane).await.len(), 1);
}

/// No run is stopped. A raised or removed limit holds at once.
pub async fn a_lowered_limit_holds_for_later_claims(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert(mail().times(20)).await[0].lane.id;
    let running = fixture.lease(lane, 4).await;
    limit(&fixture, 2).await;
    for (nth, task) in running.iter().enumerate() {
        assert_eq!(taken(&fixture, lane).await.len(), 0, "{} run", running.len() - nth);
        fixture.apply(task, complete(None)).await;
        if nth == 1 {
            break;
        }
    }
    assert_eq!(taken(&fixture, lane).await.len(), 0, "two run");
    fixture.apply(&running[2], complete(None)).await;
    assert_eq!(taken(&fixture, lane).await.len(), 1);
    limit(&fixture, 3).await;
    assert_eq!(taken(&fixture, lane).await.len(), 1);
    put(&fixture, Settings::default()).await;
    assert_eq!(taken(&fixture, lane).await.len(), 14);
}

/// A freed place and a change of a limit, but no tasks in queues without limits.
pub async fn limit_changes_name_freed_places(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert(mail().times(3)).await[0].lane.id;
    limit(&fixture, 1).await;
    assert!(fixture.database.wait_for_limit_changes().await.changed);
    let task = taken(&fixture, lane).await.remove(0);
    let free = fixture.running(mail().queue("free")).await;
    fixture.apply(&free, complete(None)).await;
    fixture.apply(&task, complete(None)).await;
    // "Anything may have changed" may be reported once more: a store that has just opened has
    // missed earlier reports.
    let freed = loop {
        let changes = fixture.database.wait_for_limit_changes().await;
        if !changes.freed.is_empty() {
            break changes.freed;
        }
    };
    assert_eq!(freed, [("acme".to_owned(), "mail".to_owned())]);
    change(&fixture, QueueChange::Pause(pause(&fixture, None))).await;
    assert!(fixture.database.wait_for_limit_changes().await.changed);
    change(&fixture, QueueChange::Resume).await;
    assert!(fixture.database.wait_for_limit_changes().await.changed);
}
