//! Settings and pauses of queues.

use std::sync::Arc;

use punctual_core::condition::Condition;
use punctual_core::queues::{Changed, LiveCounts, OnDeadLetter, Queue, QueueChange, RateLimit, Settings, Switch};
use punctual_core::store::{Claim, LimitKind};
use punctual_core::task::{Callback, CallbackBody};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{QUEUE, TENANT, change, claim, held, mail, pause, put, taken};
use crate::fixtures::{retry_policy, task};
use crate::store::{RowDamage, StoreFactory, StoreFixture, complete, worker};

fn all() -> Settings {
    Settings {
        max_concurrency: Some(3),
        max_per_key: Some(3),
        rate_limit: Some(RateLimit { per_second: 0.25, burst: 7 }),
        max_depth: Some(1_000),
        retry_policy: Some(retry_policy()),
        timeout_millis: Some(1_234),
        dispatch_jitter_millis: 5_000,
        on_dead_letter: OnDeadLetter::Hold,
        callback: Some(Callback {
            url: "https://example.com/hook".to_owned(),
            headers: [("x-team".to_owned(), "mail".to_owned())].into(),
            body: CallbackBody::Envelope,
        }),
    }
}

async fn found(fixture: &StoreFixture<'_>) -> Queue {
    fixture.database.queue(TENANT, QUEUE).await.expect("a queue can be read").expect("it exists").queue
}

/// Everything is read back. The second settings replace the first, and the pause stays.
pub async fn put_replaces_the_settings(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let queue = put(&fixture, all()).await;
    assert_eq!((&queue.settings, queue.version, &queue.pause), (&all(), 1, &None));
    assert_eq!(found(&fixture).await, queue);
    let paused = change(&fixture, QueueChange::Pause(pause(&fixture, None))).await;
    assert_eq!((&paused.settings, paused.version), (&all(), 2));
    let queue = put(&fixture, Settings { max_depth: Some(9), ..Settings::default() }).await;
    let expected = Settings { max_depth: Some(9), ..Settings::default() };
    assert_eq!((&queue.settings, queue.version, &queue.pause), (&expected, 3, &paused.pause));
    let queue = change(&fixture, QueueChange::Put(Settings::default(), Some(Switch::Off(fixture.now())))).await;
    assert_eq!((&queue.settings, queue.version, &queue.pause), (&Settings::default(), 4, &None));
    assert_eq!(found(&fixture).await, queue);
    let paused = change(&fixture, QueueChange::Put(all(), Some(Switch::On(pause(&fixture, None))))).await;
    assert_eq!((paused.version, paused.pause.is_some()), (5, true));
    let queue = change(&fixture, QueueChange::Resume).await;
    assert_eq!((queue.version, queue.pause), (6, None));
}

/// For a queue that is set, paused or only used. The first settings of an unknown queue are always
/// written.
pub async fn an_unchanged_queue_is_not_written(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let queue = put(&fixture, Settings::default()).await;
    assert_eq!(queue.version, 1);
    let off = || Some(Switch::Off(fixture.now()));
    for again in
        [QueueChange::Put(Settings::default(), None), QueueChange::Put(Settings::default(), off()), QueueChange::Resume]
    {
        assert_eq!(change(&fixture, again).await, queue);
    }
    let queue = put(&fixture, all()).await;
    assert_eq!((put(&fixture, all()).await, found(&fixture).await), (queue.clone(), queue));
    let until = fixture.now().plus_millis(1_000);
    let paused = change(&fixture, QueueChange::Pause(pause(&fixture, Some(until)))).await;
    let on = || Some(Switch::On(pause(&fixture, None)));
    assert_eq!(change(&fixture, QueueChange::Put(all(), on())).await, paused, "it keeps its end");
    fixture.advance(1_000);
    assert_eq!(change(&fixture, QueueChange::Put(all(), off())).await, paused, "the pause is over");
    assert_eq!(change(&fixture, QueueChange::Put(all(), on())).await.version, paused.version + 1);
    let fixture = fixture.reopen().await;
    assert_eq!(found(&fixture).await.version, paused.version + 1);

    fixture.insert_one(mail().queue("used")).await;
    let put = |settings| fixture.database.change_queue(TENANT, "used", QueueChange::Put(settings, None));
    assert_eq!(put(Settings::default()).await.expect("it answers"), Queue::unset(TENANT, "used"));
    assert_eq!(put(all()).await.expect("it answers").version, 1);
    let removed = change(&fixture, QueueChange::Remove).await;
    assert_eq!(
        change(&fixture, QueueChange::Put(Settings::default(), None)).await.version,
        removed.version + 1,
        "it is back"
    );
}

/// The next process reads and follows them.
pub async fn settings_and_pauses_outlive_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert_one(mail()).await.lane.id;
    put(&fixture, all()).await;
    let queue = change(&fixture, QueueChange::Pause(pause(&fixture, None))).await;
    let fixture = fixture.reopen().await;
    assert_eq!(found(&fixture).await, queue);
    let claimed = claim(&fixture, &[lane]).await;
    assert_eq!((claimed.tasks.len(), held(&claimed)), (0, vec![(lane, LimitKind::Pause, None)]));
    change(&fixture, QueueChange::Resume).await;
    let fixture = fixture.reopen().await;
    assert_eq!(taken(&fixture, lane).await.len(), 1);
}

/// Without its settings its limits are unknown. The other queues of the tenant continue.
pub async fn a_queue_with_unreadable_settings_is_paused(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let bad = fixture.insert_one(mail()).await.lane.id;
    let good = fixture.insert_one(mail().queue("other")).await.lane.id;
    let version = put(&fixture, all()).await.version;
    fixture.damage(RowDamage::QueueSettings(TENANT, QUEUE)).await;
    let fixture = fixture.reopen().await;
    let special = fixture.database.queues_changed_since(0).await.expect("one bad queue does not fail the others");
    let paused = found(&fixture).await;
    assert_eq!(special, std::slice::from_ref(&paused));
    assert_eq!((&paused.settings, paused.version), (&Settings::default(), version));
    let pause = paused.pause.expect("it is paused");
    assert!(pause.until.is_none() && pause.reason.is_some_and(|reason| reason.contains("cannot be read")));
    let claimed = claim(&fixture, &[bad, good]).await;
    assert_eq!((claimed.tasks.len(), held(&claimed)), (1, vec![(bad, LimitKind::Pause, None)]));
    let set = put(&fixture, all()).await;
    assert_eq!((&set.settings, set.version), (&all(), version + 1));
    change(&fixture, QueueChange::Resume).await;
    assert_eq!(taken(&fixture, bad).await.len(), 1);
}

/// A task, a setting or a pause: each is a first use.
pub async fn a_queue_exists_from_its_first_use(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let exists = async |name: &str| fixture.database.queue(TENANT, name).await.expect("it answers").is_some();
    for name in ["used", "set", "paused", "resumed"] {
        assert!(!exists(name).await, "{name}");
    }
    fixture.insert_one(mail().queue("used")).await;
    for (name, made) in [
        ("set", QueueChange::Put(Settings::default(), None)),
        ("paused", QueueChange::Pause(pause(&fixture, None))),
        ("resumed", QueueChange::Resume),
    ] {
        fixture.database.change_queue(TENANT, name, made).await.expect("it answers");
    }
    let used = fixture.database.queue(TENANT, "used").await.expect("it answers").expect("it is there");
    assert_eq!(used.queue, Queue::unset(TENANT, "used"));
    assert_eq!(used.live, LiveCounts { pending: 1, ..LiveCounts::default() });
    for name in ["set", "paused", "resumed"] {
        assert!(exists(name).await, "{name}");
    }
    assert!(!exists("other").await);
}

/// A queue with tasks, and one that was only set. Its settings no longer apply.
pub async fn a_removed_queue_is_shown_while_it_has_tasks(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let names = async || {
        let queues = fixture.database.queues(TENANT, None, 10).await.expect("it answers");
        queues.into_iter().map(|found| found.queue.name).collect::<Vec<_>>()
    };
    let exists = async |name: &str| fixture.database.queue(TENANT, name).await.expect("it answers").is_some();
    put(&fixture, Settings { max_concurrency: Some(1), ..all() }).await;
    fixture.database.change_queue(TENANT, "only-set", QueueChange::Put(all(), None)).await.expect("it answers");
    let lane = fixture.insert_one(mail()).await.lane.id;
    assert_eq!(names().await, [QUEUE, "only-set"]);
    fixture.database.change_queue(TENANT, "only-set", QueueChange::Remove).await.expect("it answers");
    assert_eq!((names().await, exists("only-set").await), (vec![QUEUE.to_owned()], false));

    let removed = change(&fixture, QueueChange::Remove).await;
    assert_eq!((&removed.settings, removed.version, removed.removed), (&Settings::default(), 2, true));
    assert_eq!((names().await, found(&fixture).await), (vec![QUEUE.to_owned()], removed), "it has tasks");
    for running in taken(&fixture, lane).await {
        fixture.apply(&running, complete(None)).await;
    }
    assert_eq!((names().await, exists(QUEUE).await), (vec![], false));
    fixture.insert_one(mail()).await;
    assert_eq!((names().await, exists(QUEUE).await), (vec![QUEUE.to_owned()], true));
    let queue = put(&fixture, all()).await;
    assert_eq!((queue.version, queue.removed, queue.settings), (3, false, all()));
    fixture
        .database
        .change_queue(TENANT, "only-set", QueueChange::Pause(pause(&fixture, None)))
        .await
        .expect("it answers");
    assert_eq!(names().await, [QUEUE, "only-set"]);
}

/// A missing queue has no version, and one that is only used is at 0.
pub async fn a_change_may_need_a_version(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let under = async |condition: Condition| {
        // Other settings each time, so that they are written.
        let settings = Settings { max_depth: Some(fixture.now().as_millis().unsigned_abs()), ..all() };
        fixture.advance(1);
        let change = QueueChange::Put(settings, None);
        fixture.database.change_queue_at(TENANT, QUEUE, &condition, change).await.expect("it answers")
    };
    for absent in [Condition::at([0, 1]), Condition::there()] {
        assert_eq!(under(absent).await, Changed::AtAnother(None));
    }
    assert_eq!(fixture.database.queue(TENANT, QUEUE).await.expect("it answers"), None);
    let lane = fixture.insert_one(mail()).await.lane.id;
    let unset = Some(Queue::unset(TENANT, QUEUE));
    for condition in [Condition::at([1, 2]), Condition::absent()] {
        assert_eq!(under(condition).await, Changed::AtAnother(unset.clone()));
    }
    let Changed::Done(queue) = under(Condition::at([5, 0])).await else { panic!("it is at 0") };
    for condition in [Condition::at([]), Condition::at([0]), Condition::absent()] {
        assert_eq!(under(condition).await, Changed::AtAnother(Some(queue.clone())));
    }
    assert_eq!(found(&fixture).await, queue);
    assert!(matches!(under(Condition::at([1])).await, Changed::Done(queue) if queue.version == 2));
    assert!(matches!(under(Condition::there()).await, Changed::Done(queue) if queue.version == 3));
    // A removed queue is shown as long as it has tasks.
    change(&fixture, QueueChange::Remove).await;
    assert!(matches!(under(Condition::absent()).await, Changed::AtAnother(Some(queue)) if queue.version == 4));
    change(&fixture, QueueChange::Remove).await;
    for running in taken(&fixture, lane).await {
        fixture.apply(&running, complete(None)).await;
    }
    assert_eq!(under(Condition::at([5])).await, Changed::AtAnother(None));
    assert!(matches!(under(Condition::absent()).await, Changed::Done(queue) if queue.version == 6));
}

/// By name, strictly after a name, up to the limit. The counts of its lanes are added.
pub async fn queues_are_listed_by_name_with_their_live_tasks(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for (queue, kind, tasks) in [("b", "x", 2), ("b", "y", 3), ("a/b", "x", 1), ("Z", "x", 1)] {
        fixture.insert(mail().queue(queue).kind(kind).times(tasks)).await;
    }
    fixture.insert_one(task().tenant("other").queue("aa")).await;
    let lane = fixture.insert_one(mail().queue("b").kind("z")).await.lane.id;
    fixture.lease(lane, 1).await;
    fixture.database.change_queue(TENANT, "set", QueueChange::Resume).await.expect("it answers");
    let list = async |after: Option<&str>, limit| {
        let listed = fixture.database.queues(TENANT, after.map(str::to_owned), limit).await.expect("it answers");
        listed.into_iter().map(|found| (found.queue.name, found.live.pending, found.live.running)).collect::<Vec<_>>()
    };
    let whole = [("Z", 1, 0), ("a/b", 1, 0), ("b", 5, 1), ("set", 0, 0)].map(|(name, p, r)| (name.to_owned(), p, r));
    assert_eq!(list(None, 10).await, whole);
    assert_eq!(list(None, 2).await, whole[..2]);
    assert_eq!(list(Some("a/b"), 10).await, whole[2..]);
    assert_eq!(list(Some("set"), 10).await, []);
}

/// The same name is another queue.
pub async fn queues_of_tenants_are_apart(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let ours = fixture.insert_one(mail()).await.lane.id;
    let theirs = fixture.insert_one(mail().tenant("other")).await.lane.id;
    change(&fixture, QueueChange::Pause(pause(&fixture, None))).await;
    let claimed = claim(&fixture, &[ours, theirs]).await;
    assert_eq!(claimed.tasks.iter().map(|task| task.lane.id).collect::<Vec<_>>(), [theirs]);
    let others = fixture.database.queue("other", QUEUE).await.expect("it answers").expect("it was used");
    assert_eq!(others.queue, Queue::unset("other", QUEUE));
}

/// With any settings, of any tenant. A queue that was only used is not listed.
pub async fn changed_queues_are_read_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    fixture.insert_one(mail().queue("used")).await;
    let changed = async |after: u64| {
        let mut queues = fixture.database.queues_changed_since(after).await.expect("it answers");
        queues.sort_unstable_by_key(|queue| queue.change_number);
        queues
    };
    let change = async |(tenant, name), change| {
        fixture.database.change_queue(tenant, name, change).await.expect("a queue can be changed")
    };
    assert_eq!(changed(0).await, []);
    let mut expected = Vec::new();
    for queue in [("a", "x"), ("a", "y"), ("b", "x")] {
        expected.push(change(queue, QueueChange::Put(all(), None)).await);
    }
    assert!(expected.is_sorted_by(|one, next| one.change_number < next.change_number), "{expected:?}");
    assert_eq!(changed(0).await, expected);
    assert_eq!(changed(expected[1].change_number).await, expected[2..]);
    let last = expected[2].change_number;
    assert_eq!(changed(last).await, [], "nothing has changed since");
    let same = change(("a", "x"), QueueChange::Put(all(), None)).await;
    assert_eq!((same, changed(last).await), (expected[0].clone(), vec![]), "a change that changes nothing");
    let removed = change(("a", "y"), QueueChange::Remove).await;
    assert!(removed.removed && removed.change_number > last);
    assert_eq!(changed(last).await, [removed]);
    assert_eq!(changed(0).await, [expected[0].clone(), expected[2].clone()], "a removed queue is not set");
    let again = change(("a", "y"), QueueChange::Put(all(), None)).await;
    assert_eq!(changed(last).await, [again]);
}

/// Pull or push. The claim takes from its other lanes.
pub async fn a_paused_queue_gives_nothing(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let pulled = fixture.insert_one(mail()).await.lane.id;
    let pushed = fixture.insert_one(mail().push("http://127.0.0.1:9")).await.lane.id;
    let other = fixture.insert_one(mail().queue("other")).await.lane.id;
    change(&fixture, QueueChange::Pause(pause(&fixture, None))).await;
    let claimed = claim(&fixture, &[pulled, other]).await;
    assert_eq!(claimed.tasks.iter().map(|task| task.lane.id).collect::<Vec<_>>(), [other]);
    assert_eq!(held(&claimed), [(pulled, LimitKind::Pause, None)]);
    assert_eq!(fixture.dispatch(pushed, 1).await.len(), 0);
    let until = fixture.now().plus_millis(60_000);
    change(&fixture, QueueChange::Pause(pause(&fixture, Some(until)))).await;
    assert_eq!(held(&claim(&fixture, &[pulled]).await), [(pulled, LimitKind::Pause, Some(until))]);
    change(&fixture, QueueChange::Resume).await;
    let claimed = claim(&fixture, &[pulled]).await;
    assert_eq!((claimed.tasks.len(), held(&claimed)), (1, vec![]));
    assert_eq!(fixture.dispatch(pushed, 1).await.len(), 1);
}

/// The pause ends not a millisecond early, and the earlier limit applies again.
pub async fn a_pause_ends_by_itself(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert(mail().times(3)).await[0].lane.id;
    put(&fixture, Settings { max_concurrency: Some(2), ..Settings::default() }).await;
    let until = fixture.now().plus_millis(5_000);
    change(&fixture, QueueChange::Pause(pause(&fixture, Some(until)))).await;
    fixture.advance(4_999);
    assert_eq!(taken(&fixture, lane).await.len(), 0);
    fixture.advance(1);
    assert_eq!(taken(&fixture, lane).await.len(), 2);
    assert!(found(&fixture).await.paused(fixture.now()).is_none());
}

/// Many workers claim all the time. Nothing is claimed after the pause is answered.
pub async fn a_pause_holds_for_claims_under_way(factory: &dyn StoreFactory) {
    const CLAIMERS: usize = 8;
    let fixture = StoreFixture::open(factory).await;
    for _ in 0..5 {
        change(&fixture, QueueChange::Resume).await;
        let lane = fixture.insert(mail().times(400)).await[0].lane.id;
        let together = Arc::new(Barrier::new(CLAIMERS + 1));
        let mut claimers = JoinSet::new();
        for claimer in 0..CLAIMERS {
            let (store, together) = (Arc::clone(&fixture.store), Arc::clone(&together));
            claimers.spawn(async move {
                together.wait().await;
                for _ in 0..40 {
                    let claimant = worker(&format!("worker-{claimer}"));
                    let claim = Claim { lanes: vec![(lane, 1)], limit: 1, claimant };
                    store.claim(vec![claim]).await.expect("claim answers");
                }
            });
        }
        together.wait().await;
        tokio::task::yield_now().await;
        change(&fixture, QueueChange::Pause(pause(&fixture, None))).await;
        let running =
            async || fixture.database.queue(TENANT, QUEUE).await.expect("it answers").expect("it is used").live.running;
        let then = running().await;
        while let Some(done) = claimers.join_next().await {
            done.expect("no claimer fails");
        }
        assert_eq!(running().await, then, "a task was claimed after the pause was answered");
        assert_eq!(taken(&fixture, lane).await.len(), 0);
    }
}
