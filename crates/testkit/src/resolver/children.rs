//! The sentences about dependencies.

use punctual_core::ids::TaskId;
use punctual_core::queues::OnDeadLetter;
use punctual_core::state::{Event, State};
use punctual_core::store::Inserted;
use punctual_core::task::{NewTask, OnDependencyFailure, Task};
use punctual_core::trail::{Actor, Step};

use super::keys::{remove_history, review};
use super::{claimable, set, state_of, take};
use crate::fixtures::{TENANT, TaskBuilder, at, task};
use crate::store::{StoreFactory, StoreFixture, assert_same, complete, created, fail_for_good, replayed};

pub(super) fn child_of(parents: &[&Task]) -> TaskBuilder {
    task().depends_on(&parents.iter().map(|task| task.id).collect::<Vec<_>>())
}

/// Stores a task in its own queue.
pub(super) async fn parent(fixture: &StoreFixture<'_>, queue: &str) -> Task {
    fixture.insert_one(task().queue(queue)).await
}

/// Runs a waiting task and brings it to this final state.
pub(super) async fn end(fixture: &StoreFixture<'_>, task: &Task, end: State) -> Task {
    let current = fixture.get(task).await;
    match end {
        State::Cancelled => fixture.apply(&current, Event::Cancel).await,
        State::Failed => fixture.apply(&current, Event::Expire).await,
        _ => {
            let running = fixture.lease(current.lane.id, 1).await.pop().expect("it can be claimed");
            assert_eq!(running.id, task.id, "it is the first of its lane");
            let event = if end == State::Completed { complete(None) } else { fail_for_good(&running) };
            fixture.apply(&running, event).await
        }
    }
}

/// All dependencies, completing in any order. After that the task's own time counts.
pub async fn a_task_waits_for_what_it_depends_on(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (a, b, c) = (parent(&fixture, "a").await, parent(&fixture, "b").await, parent(&fixture, "c").await);
    end(&fixture, &c, State::Completed).await;
    let child = fixture.insert_one(child_of(&[&a, &b, &c])).await;
    let later = fixture.insert_one(child_of(&[&a]).due(at(60_000))).await;
    assert_eq!((child.state(), child.position.version), (State::Blocked, 1));
    assert_eq!(child.trail.entries().next().expect("its first step").to, State::Blocked);
    assert_same(&fixture.get(&child).await, &child);
    assert!(claimable(&fixture, child.lane.id).await.is_empty());
    assert_eq!(fixture.counts().await[&(child.lane.id, State::Blocked)], 2);
    fixture.advance(1_000);
    end(&fixture, &b, State::Completed).await;
    assert!(claimable(&fixture, child.lane.id).await.is_empty());
    assert_eq!(state_of(&fixture, &child).await, State::Blocked);
    end(&fixture, &a, State::Completed).await;
    assert_eq!(fixture.resolve().await, 2);
    let released = fixture.get(&child).await;
    assert_eq!((released.state(), released.due_at, released.execute_at), (State::Pending, at(1_000), child.execute_at));
    let step = released.trail.last().expect("a step");
    assert_eq!((step.step, step.actor, step.version), (Step::Unblocked, Actor::Resolver, 2));
    assert_eq!(fixture.get(&later).await.due_at, at(60_000));
    take(&fixture, child.lane.id, &[&child]).await;
    assert_eq!(fixture.resolve().await, 0, "the child is released once");

    let done = fixture.insert_one(child_of(&[&a, &b])).await;
    assert_eq!(done.state(), State::Pending, "all its dependencies had completed before");
    assert_eq!(done.body.dependencies.ids, [a.id, b.id]);
    take(&fixture, done.lane.id, &[&done]).await;
}

/// An unknown task and a task of another tenant are refused.
pub async fn an_unknown_task_cannot_be_depended_on(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let theirs = fixture.insert_one(task().tenant("other")).await;
    let there = fixture.insert_one(task()).await;
    let unknown = TaskId::new();
    for missing in [unknown, theirs.id] {
        let refused = task().key("k", 1).depends_on(&[there.id, missing]).build();
        let depending = task().depends_on(&[refused.id]).build();
        let deep = task().depends_on(&[depending.id, there.id]).build();
        let replay = NewTask { id: TaskId::new(), ..refused.clone() };
        let good = task().depends_on(&[there.id]).build();
        let ids = [deep.id, depending.id, refused.id, replay.id, good.id];
        let batch = vec![deep.clone(), depending.clone(), refused.clone(), replay, good];
        let answers = fixture.store.insert(batch).await.expect("insert answers");
        let found: Vec<Option<TaskId>> = answers
            .iter()
            .map(|answer| match answer {
                Inserted::UnknownDependency(id) => Some(*id),
                Inserted::Created(_) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, [Some(depending.id), Some(refused.id), Some(missing), Some(missing), None]);
        for id in &ids[..4] {
            assert!(fixture.find(TENANT, *id).await.is_none(), "a refused task is stored");
        }
    }
    let counted: u64 = fixture.counts().await.into_values().sum();
    assert_eq!(counted, 4, "refused tasks do not count");
    created(fixture.store.insert(vec![task().key("k", 2).build()]).await.expect("insert answers").remove(0));
}

/// In its own batch, whatever ids the replay has.
pub async fn a_replayed_member_stands_for_its_first_task(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(task().queue("first").key("k", 1)).await;
    let again = task().queue("first").key("k", 1).build();
    let twice = task().queue("first").key("k", 1).build();
    let reused = task().queue("first").key("k", 2).build();
    let child = task().depends_on(&[again.id, twice.id]).build();
    let refused = task().depends_on(&[reused.id]).build();
    let batch = vec![child.clone(), again, twice, reused.clone(), refused];
    let mut answers = fixture.store.insert(batch).await.expect("insert answers").into_iter();
    let child = created(answers.next().expect("five answers"));
    assert_eq!((child.state(), &child.body.dependencies.ids), (State::Blocked, &vec![first.id]));
    for _ in 0..2 {
        assert_eq!(replayed(answers.next().expect("five answers")).id, first.id);
    }
    assert!(matches!(answers.next(), Some(Inserted::KeyReused(id)) if id == first.id));
    assert!(matches!(answers.next(), Some(Inserted::UnknownDependency(id)) if id == reused.id));
    end(&fixture, &first, State::Completed).await;
    take(&fixture, child.lane.id, &[&child]).await;

    // The first of a batch may be a member itself.
    let first = task().queue("second").key("m", 1).build();
    let again = task().queue("second").key("m", 1).build();
    let child = task().depends_on(&[again.id]).build();
    let answers = fixture.store.insert(vec![child, first.clone(), again]).await.expect("insert answers");
    let child = created(answers.into_iter().next().expect("three answers"));
    assert_eq!(child.body.dependencies.ids, [first.id]);
}

/// Each policy meets each final state, before the submission and after it.
pub async fn a_failed_dependency_follows_the_policy(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let policies = [
        (OnDependencyFailure::Cancel, State::Cancelled),
        (OnDependencyFailure::Run, State::Pending),
        (OnDependencyFailure::Fail, State::Failed),
    ];
    let mut queue = 0;
    for (policy, expected) in policies {
        for ended in [State::Completed, State::Cancelled, State::Failed, State::DeadLettered] {
            for before in [false, true] {
                queue += 1;
                let parent = parent(&fixture, &format!("q{queue}")).await;
                let other = fixture.insert_one(task().queue("never").due(at(1_000_000))).await;
                if before {
                    end(&fixture, &parent, ended).await;
                }
                let alone = fixture.insert_one(child_of(&[&parent]).on_dependency_failure(policy)).await;
                let both = fixture.insert_one(child_of(&[&parent, &other]).on_dependency_failure(policy)).await;
                if !before {
                    assert_eq!(state_of(&fixture, &alone).await, State::Blocked);
                    end(&fixture, &parent, ended).await;
                }
                fixture.resolve().await;
                let case = format!("{policy:?}, {ended:?}, before: {before}");
                let expected = if ended == State::Completed { State::Pending } else { expected };
                let child = fixture.get(&alone).await;
                assert_eq!(child.state(), expected, "{case}");
                let still = if expected == State::Pending { State::Blocked } else { expected };
                assert_eq!(state_of(&fixture, &both).await, still, "{case}");
                if expected.is_final() {
                    let (_, error) = child.trail.last_error().expect("it says why");
                    assert_eq!(error.code, "dependency_failed", "{case}");
                    let named = Step::ParentFailed { parent: parent.id, ended };
                    assert_eq!(child.trail.last().map(|entry| entry.step), Some(named), "{case}");
                }
                fixture.apply(&other, Event::Cancel).await;
                fixture.resolve().await;
            }
        }
    }
    assert_eq!(fixture.resolve().await, 0);
}

/// Longer than any stack is deep.
pub async fn a_failure_goes_down_a_chain(factory: &dyn StoreFactory) {
    const LINKS: usize = 2_000;
    let fixture = StoreFixture::open(factory).await;
    let mut chain = vec![task().queue("root").build()];
    for link in 0..LINKS {
        chain.push(task().depends_on(&[chain[link].id]).build());
    }
    let tasks = fixture.insert(chain).await;
    assert!(tasks[1..].iter().all(|task| task.state() == State::Blocked));
    fixture.apply(&tasks[0], Event::Cancel).await;
    assert_eq!(fixture.resolve().await, LINKS);
    for task in [&tasks[1], &tasks[LINKS / 2], &tasks[LINKS]] {
        assert_eq!(state_of(&fixture, task).await, State::Cancelled);
    }
    assert_eq!(fixture.counts().await.into_values().sum::<u64>(), 0);
}

/// In a queue that holds, for every policy: a dead letter does not end the wait.
pub async fn a_dead_letter_may_hold_its_children(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    set(&fixture, OnDeadLetter::Hold).await;
    let mut children = Vec::new();
    for kind in ["driven", "removed", "let go"] {
        let parent = fixture.insert_one(task().kind(kind)).await;
        let child = fixture.insert_one(child_of(&[&parent]).queue("children")).await;
        let dead = end(&fixture, &parent, State::DeadLettered).await;
        let late = fixture.insert_one(child_of(&[&parent]).queue("children")).await;
        children.push((dead, child, late));
    }
    review(&fixture).await;
    fixture.resolve().await;
    for (_, child, late) in &children {
        assert_eq!((state_of(&fixture, child).await, late.state()), (State::Blocked, State::Blocked));
    }
    let (dead, child, late) = &children[0];
    let back = fixture.apply(dead, Event::Redrive(None)).await;
    review(&fixture).await;
    fixture.resolve().await;
    assert_eq!(state_of(&fixture, child).await, State::Blocked, "it has not ended yet");
    end(&fixture, &back, State::Completed).await;
    take(&fixture, child.lane.id, &[child, late]).await;

    fixture.advance(1_000_000_000_000);
    let (dead, child, late) = &children[1];
    // The task that must not be pruned here is re-driven before.
    let kept = fixture.apply(&children[2].0, Event::Redrive(None)).await;
    remove_history(&fixture).await;
    assert!(fixture.find(TENANT, dead.id).await.is_none());
    review(&fixture).await;
    fixture.resolve().await;
    assert_eq!((state_of(&fixture, child).await, state_of(&fixture, late).await), (State::Cancelled, State::Cancelled));

    let (_, child, late) = &children[2];
    let dead = end(&fixture, &kept, State::DeadLettered).await;
    review(&fixture).await;
    fixture.resolve().await;
    assert_eq!(state_of(&fixture, child).await, State::Blocked);
    set(&fixture, OnDeadLetter::Continue).await;
    review(&fixture).await;
    fixture.resolve().await;
    assert_eq!((state_of(&fixture, child).await, state_of(&fixture, late).await), (State::Cancelled, State::Cancelled));
    assert_eq!(state_of(&fixture, &dead).await, State::DeadLettered);
}

/// Until it is released. Then its time decides its place.
pub async fn a_blocked_task_has_no_place_in_its_key(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let parent = parent(&fixture, "parent").await;
    let first = fixture.insert_one(child_of(&[&parent]).ordering_key("k").due(at(-10))).await;
    let second = fixture.insert_one(task().ordering_key("k").due(at(-5))).await;
    let running = take(&fixture, second.lane.id, &[&second]).await.remove(0);
    let third = fixture.insert_one(task().ordering_key("k").due(at(-8))).await;
    end(&fixture, &parent, State::Completed).await;
    assert!(claimable(&fixture, first.lane.id).await.is_empty());
    fixture.apply(&running, complete(None)).await;
    let running = take(&fixture, first.lane.id, &[&first]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    take(&fixture, first.lane.id, &[&third]).await;
}

/// Fan-in: the count of open dependencies is exact.
pub async fn thousands_of_parents_release_one_child_once(factory: &dyn StoreFactory) {
    const PARENTS: usize = 3_000;
    let fixture = StoreFixture::open(factory).await;
    let parents = fixture.insert(task().queue("parents").times(PARENTS)).await;
    let ids: Vec<TaskId> = parents.iter().map(|task| task.id).collect();
    let child = fixture.insert_one(task().depends_on(&ids)).await;
    let lane = parents[0].lane.id;
    for round in 0..PARENTS / 500 {
        assert_eq!(state_of(&fixture, &child).await, State::Blocked, "after {round} rounds");
        let running = fixture.lease(lane, 500).await;
        let changes = running.iter().map(|task| fixture.change(task, complete(None))).collect();
        fixture.store.apply(changes).await.expect("apply answers");
        let released = fixture.resolve().await;
        assert_eq!(released, usize::from(round == PARENTS / 500 - 1));
    }
    take(&fixture, child.lane.id, &[&child]).await;
}

/// The resolver releases the children in several steps, none of them large.
pub async fn thousands_of_children_follow_one_parent(factory: &dyn StoreFactory) {
    const CHILDREN: usize = 3_500;
    let fixture = StoreFixture::open(factory).await;
    let parent = parent(&fixture, "parent").await;
    let children = fixture.insert(child_of(&[&parent]).times(CHILDREN)).await;
    end(&fixture, &parent, State::Completed).await;
    let first = fixture.database.resolve().await.expect("resolve answers");
    assert!(first.more && first.tasks <= 1_000, "{} at once", first.tasks);
    assert_eq!(first.tasks + fixture.resolve().await, CHILDREN);
    let lane = children[0].lane.id;
    assert_eq!(fixture.counts().await[&(lane, State::Pending)], CHILDREN as u64);
}

/// They are shown for a live and for a finished task, and after a restart.
pub async fn the_dependencies_of_a_task_are_shown(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (a, b) = (parent(&fixture, "a").await, parent(&fixture, "b").await);
    let wish = child_of(&[&b, &a]).ordering_key("ключ 🔑").on_dependency_failure(OnDependencyFailure::Fail);
    let child = fixture.insert_one(wish).await;
    assert_eq!(child.body.dependencies.ids, [b.id, a.id]);
    assert_same(&fixture.get(&child).await, &child);
    let cancelled = fixture.apply(&child, Event::Cancel).await;
    assert_eq!(cancelled.body, child.body);
    let fixture = fixture.reopen().await;
    assert_same(&fixture.get(&cancelled).await, &cancelled);
    // Its parents can end.
    end(&fixture, &a, State::Completed).await;
    end(&fixture, &b, State::Cancelled).await;
    assert_eq!(fixture.resolve().await, 0);
}
