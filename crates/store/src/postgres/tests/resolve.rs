//! Turns and dependencies when several nodes resolve at once. One store merges concurrent steps
//! into one, so only several stores race.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Applied, Claim, Claimant, Store};
use punctual_core::task::{NewTask, OnDependencyFailure, Task};
use punctual_core::trail::Actor;
use punctual_core::upkeep::Upkeep;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{Dice, START, TENANT, TaskBuilder, at, retry_policy, task};
use punctual_testkit::store::{complete, fail, fail_for_good};
use tokio::task::JoinSet;

use super::super::PostgresStore;
use super::super::connection::Session;
use super::super::row::state_column;
use super::super::statements::Sql;
use super::{Fixture, insert, lease, open};
use crate::columns::number_column;
use crate::ordering::ordering;

const NODES: usize = 3;
const ROUNDS: usize = 30;
/// The tasks of a key are spread over all of them.
const QUEUES: usize = 3;

/// Three nodes submit, claim, settle and resolve at once. A key never has two held tasks and keeps
/// its order, no task runs before its dependencies, and every task finishes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_resolvers_give_one_turn_at_a_time() {
    let fixture = Fixture::open().await;
    let mut stores = vec![fixture.store.clone()];
    for number in 1..NODES as u64 {
        stores.push(open(&fixture.url, NodeId::new(100 + number)).await);
    }
    let mut lanes = Vec::new();
    for queue in 0..QUEUES {
        let known = insert(&fixture.store, in_queue(queue)).await;
        lanes.push(known.lane.id);
        assert!(super::complete(&fixture.store, &lease(&fixture.store, &known, 1).await[0]).await);
    }
    let (book, stop) = (Arc::new(Mutex::new(Book::default())), Arc::new(AtomicBool::new(false)));
    let mut nodes = JoinSet::new();
    for (number, store) in stores.iter().enumerate() {
        nodes.spawn(resolve(store.clone(), Arc::clone(&stop)));
        for claimer in 0..2 {
            let dice = Dice::new((number * 2 + claimer) as u64);
            nodes.spawn(run(store.clone(), lanes.clone(), Arc::clone(&book), Arc::clone(&stop), dice));
        }
    }
    let mut submitters = JoinSet::new();
    for number in 0..NODES {
        submitters.spawn(submit(stores.clone(), number, Arc::clone(&book)));
    }
    submitters.join_all().await;
    eventually("every task finishes", Duration::from_mins(1), async || {
        if let Some(failed) = nodes.try_join_next() {
            failed.unwrap();
        }
        let (ended, known) = {
            let book = book.lock().unwrap();
            (book.ended.len(), book.known.len())
        };
        if ended == known { Ok(()) } else { Err(format!("{ended} of {known}")) }
    })
    .await;
    let left = "SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM orders_due)
         + (SELECT count(*) FROM dependencies) + (SELECT count(*) FROM settled_parents) + (SELECT count(*) FROM tasks)";
    eventually("nothing is left behind", Duration::from_secs(20), async || match fixture.number(left).await {
        0 => Ok(()),
        rows => Err(format!("{rows} rows")),
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    nodes.join_all().await;
    fixture.assert_counts().await;
}

/// A claim may take a task and give it back while the resolver decides. Then the resolver saw it as
/// waiting, and later passed it over as running: it must not lose its turn to the task behind it.
#[tokio::test]
async fn a_task_that_changed_since_it_was_read_keeps_its_turn() {
    let fixture = Fixture::open().await;
    let task = insert(&fixture.store, in_queue(0).ordering_key("key")).await;
    fixture.store.resolve().await.unwrap();
    let (id, pending) = (task.id.uuid(), state_column(State::Pending));
    let take = async |version: u64| {
        let (ids, versions) = (vec![id], vec![number_column(version)]);
        let take = async |session: &Session| session.query(Sql::TurnTake, &[&ids, &versions, &pending]).await;
        fixture.store.reads().call(take).await.unwrap().len()
    };
    let leased = lease(&fixture.store, &task, 1).await.remove(0);
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    let change = transition(&leased.position, Event::GiveBack(START), &by).unwrap();
    let version = change.version;
    assert!(matches!(fixture.store.apply(vec![(task.id, change)]).await.unwrap()[0], Applied::Done(_)));
    assert_eq!(take(task.position.version).await, 0, "it was given back since");
    assert_eq!(take(version).await, 1, "it has not changed");
}

/// An edit of the key may be committed after the resolver has chosen the task for its old key. With
/// that turn it would run beside the task that has the turn of its new key.
#[tokio::test]
async fn a_task_whose_key_was_edited_gets_no_turn_of_its_old_key() {
    let fixture = Fixture::open().await;
    let task = insert(&fixture.store, in_queue(0).ordering_key("new")).await;
    let keys = ["old", "new"].map(|key| ordering(TENANT, key));
    for (key, given) in keys.into_iter().zip([0, 1]) {
        let (ids, keys, pending) = (vec![task.id.uuid()], vec![key], state_column(State::Pending));
        let give =
            async |session: &Session| session.query(Sql::TurnGive, &[&ids, &keys, &START.as_millis(), &pending]).await;
        assert_eq!(fixture.store.reads().call(give).await.unwrap().len(), given);
    }
}

/// Three tasks that were cancelled because of a dead letter, each with another parent, and the dead
/// letter, re-driven with them.
async fn cancelled_children(fixture: &Fixture) -> (Task, Vec<Task>) {
    let (root, other) = (insert(&fixture.store, in_queue(0)).await, insert(&fixture.store, in_queue(1)).await);
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(insert(&fixture.store, in_queue(2).depends_on(&[root.id, other.id])).await);
    }
    let running = lease(&fixture.store, &root, 1).await.remove(0);
    apply(fixture, &running, fail_for_good(&running)).await;
    while fixture.store.resolve().await.unwrap().more {}
    let dead = fixture.store.get(TENANT, vec![root.id]).await.unwrap().remove(0).unwrap();
    apply(fixture, &dead, Event::RedriveWithDependents(None)).await;
    (root, children)
}

async fn apply(fixture: &Fixture, task: &Task, event: Event<'_>) {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    let change = transition(&task.position, event, &by).unwrap();
    let applied = fixture.store.apply(vec![(task.id, change)]).await.unwrap();
    assert!(matches!(applied[0], Applied::Done(_)), "{applied:?}");
}

/// A row that the database refuses.
#[tokio::test]
async fn a_task_that_cannot_be_revived_stops_nothing_else() {
    let fixture = Fixture::open().await;
    let (_, children) = cancelled_children(&fixture).await;
    let ordered = insert(&fixture.store, in_queue(0).ordering_key("key")).await;
    let refuse = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END';
         CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.id = '{}') EXECUTE FUNCTION refuse()",
        children[1].id.uuid()
    );
    fixture.store.reads().call(async |session: &Session| session.run(&refuse).await).await.unwrap();
    while fixture.store.resolve().await.unwrap().more {}
    let mut states = Vec::new();
    for child in &children {
        states.push(fixture.store.get(TENANT, vec![child.id]).await.unwrap().remove(0).unwrap().state());
    }
    assert_eq!(states, [State::Blocked, State::Cancelled, State::Blocked]);
    assert!(lease(&fixture.store, &ordered, 10).await.iter().any(|task| task.id == ordered.id), "it has its turn");
    assert_eq!(fixture.number("SELECT count(*) FROM revived_parents").await, 0);
}

/// A step locks all parents of the tasks that it revives.
#[tokio::test]
async fn a_step_revives_as_many_as_their_parents_allow() {
    let fixture = Fixture::open().await;
    let (root, _) = cancelled_children(&fixture).await;
    for (bound, taken) in [(4_i64, 2), (0, 1), (0, 0)] {
        let (parents, most) = (vec![root.id.uuid()], 10_i64);
        let take = async |session: &Session| session.query(Sql::FailedChildTake, &[&parents, &most, &bound]).await;
        let rows = fixture.store.reads().call(take).await.unwrap();
        assert_eq!(rows.iter().filter(|row| row.get(1)).count(), taken, "{bound}");
    }
}

fn in_queue(queue: usize) -> TaskBuilder {
    // Failed tasks are retried at once.
    task().queue(&format!("q{queue}")).retry_policy(RetryPolicy { backoff_millis: 0, ..retry_policy() })
}

/// What the claimers know of the tasks.
#[derive(Default)]
struct Book {
    known: HashMap<TaskId, Known>,
    /// The task that has the turn of each key.
    held: HashMap<String, TaskId>,
    /// How many tasks of each key have finished.
    next: HashMap<String, usize>,
    ended: HashSet<TaskId>,
}

/// A task that was submitted.
struct Known {
    key: String,
    /// Its place in the order; none if that depends on which task is unblocked first.
    number: Option<usize>,
    parents: Vec<TaskId>,
}

impl Book {
    /// Notes that a task is held, after its claim was answered.
    fn take(&mut self, task: &Task) {
        let Known { key, number, parents } = &self.known[&task.id];
        assert_eq!(self.held.insert(key.clone(), task.id), None, "{key}: two are held");
        assert!(parents.iter().all(|parent| self.ended.contains(parent)), "{key}: it runs before its dependencies");
        let next = self.next.entry(key.clone()).or_default();
        assert!(number.is_none_or(|number| number == *next), "{key}: {number:?} runs in place of {next}");
    }

    /// Notes that a task is no longer held, before the change goes to the store.
    fn release(&mut self, task: &Task, has_ended: bool) {
        let key = &self.known[&task.id].key;
        self.held.remove(key);
        if has_ended {
            *self.next.entry(key.clone()).or_default() += 1;
            assert!(self.ended.insert(task.id), "{key}: it ended twice");
        }
    }
}

/// Submits tasks of two keys in pairs, to one node after the other. After each pair it submits a
/// task that depends on both, to another node.
async fn submit(stores: Vec<PostgresStore>, number: usize, book: Arc<Mutex<Book>>) {
    let store = |round: usize| stores[round % NODES].clone();
    for round in 0..ROUNDS {
        let due = at(i64::try_from(round).unwrap() - 1_000);
        let pair = [number, number + NODES].map(|key| {
            let task = in_queue((round + key) % QUEUES).ordering_key(&format!("key {key}")).due(due).build();
            (task, Some(round), Vec::new())
        });
        let parents = pair.each_ref().map(|(task, ..)| task.id);
        put(&store(number + round), &book, pair.to_vec()).await;
        let child = in_queue(round % QUEUES).ordering_key(&format!("children of {number}")).depends_on(&parents);
        let child = child.on_dependency_failure(OnDependencyFailure::Run).build();
        put(&store(number + round + 1), &book, vec![(child, None, parents.to_vec())]).await;
    }
}

/// Notes tasks in the book and inserts them.
async fn put(store: &PostgresStore, book: &Mutex<Book>, tasks: Vec<(NewTask, Option<usize>, Vec<TaskId>)>) {
    let mut wanted = Vec::new();
    for (task, number, parents) in tasks {
        let key = task.body.ordering_key.clone().unwrap();
        book.lock().unwrap().known.insert(task.id, Known { key, number, parents });
        wanted.push(task);
    }
    let stored = store.insert(wanted).await.unwrap();
    assert!(stored.iter().all(|answer| matches!(answer, punctual_core::store::Inserted::Created(_))), "{stored:?}");
}

/// Resolves whenever there is something to do, as a node does.
async fn resolve(store: PostgresStore, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::SeqCst) {
        if !store.resolve().await.unwrap().more {
            tokio::time::timeout(Duration::from_millis(20), store.wait_for_notes()).await.ok();
        }
    }
}

/// Claims what it can and settles it at random.
async fn run(store: PostgresStore, lanes: Vec<LaneId>, book: Arc<Mutex<Book>>, stop: Arc<AtomicBool>, mut dice: Dice) {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    while !stop.load(Ordering::SeqCst) {
        let claimant = Claimant::Worker { name: "w".into(), lease_millis: 1_000, due_by: None };
        let claim = Claim { lanes: lanes.iter().map(|lane| (*lane, 3)).collect(), limit: 5, claimant };
        let taken = store.claim(vec![claim]).await.unwrap().remove(0).tasks;
        for task in &taken {
            book.lock().unwrap().take(task);
        }
        // Lets the other nodes claim meanwhile.
        tokio::time::sleep(Duration::from_millis(2)).await;
        for task in &taken {
            let event = match dice.below(10) {
                0 => Event::GiveBack(START),
                1 => fail(task),
                2 => fail_for_good(task),
                _ => complete(None),
            };
            let change = transition(&task.position, event, &by).unwrap();
            book.lock().unwrap().release(task, change.to.is_final());
            let applied = store.apply(vec![(task.id, change)]).await.unwrap();
            assert!(matches!(applied[0], Applied::Done(_)), "no other node has it: {applied:?}");
        }
    }
}
