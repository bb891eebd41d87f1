//! `list`: orders, pages and filters over tasks that do not change.

use punctual_core::ids::ScheduleId;
use punctual_core::state::{Event, State};
use punctual_core::store::{Filter, PAGE_BYTES};
use punctual_core::task::Task;
use uuid::Uuid;

use super::{StoreFactory, StoreFixture, all_of, assert_same, complete, fail, fail_for_good, ids};
use crate::fixtures::{Dice, TENANT, at, task};

/// Newest first and soonest first, with and without filters, in pages of every size: each task
/// once, in order.
pub async fn list_pages_without_gap_or_repeat(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = population(&fixture).await;
    for by_execute_at in [false, true] {
        for (filter, keeps) in filters(&stored) {
            let filter = Filter { by_execute_at, ..filter };
            let expected = in_order(&stored, &keeps, by_execute_at);
            let listed = fixture.list(filter.clone(), 7).await;
            assert_same_tasks(&listed, &expected, &filter);
        }
    }
}

/// In both orders another tenant's tasks come first, more than fit into a page. Every filter finds
/// its tasks all the same, whatever keeps them from running.
pub async fn list_finds_few_tasks_among_many(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut stored = population(&fixture).await;
    let unready = || task().queue("unready").created_at(at(60)).due(at(40)).label("parity", "odd");
    let parent = fixture.insert_one(unready().queue("q2")).await;
    let (blocked, ordered) = (unready().depends_on(&[parent.id]), || unready().ordering_key("k"));
    stored.push(parent);
    for new in [blocked, ordered(), ordered()] {
        stored.push(fixture.insert_one(new).await);
    }
    assert!(stored.iter().any(|task| task.state() == State::Blocked));
    let others = (0..300).map(|_| task().tenant("other").due(at(-1_000)).build()).collect();
    fixture.insert(others).await;
    for by_execute_at in [false, true] {
        for (filter, keeps) in filters(&stored) {
            let filter = Filter { by_execute_at, ..filter };
            let expected = in_order(&stored, &keeps, by_execute_at);
            assert_same_tasks(&fixture.list(filter.clone(), 7).await, &expected, &filter);
            let page = fixture.store.list(filter.clone(), None, 100).await.unwrap();
            assert_same_tasks(&page.tasks, &expected, &filter);
            assert_eq!(page.next, None, "{filter:?}");
        }
    }
}

/// A hundred tasks of a quarter of a megabyte need several pages; none is left out.
pub async fn list_ends_a_page_that_is_large(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let payload = format!("\"{}\"", "x".repeat(250_000));
    let mut stored = Vec::new();
    for _ in 0..5 {
        let tasks = (0..20).map(|_| task().payload(&payload).build()).collect();
        stored.extend(fixture.store.insert(tasks).await.unwrap());
    }
    let page = fixture.store.list(all_of(TENANT), None, 100).await.unwrap();
    let bytes: usize = page.tasks.iter().map(Task::bytes).sum();
    assert!((PAGE_BYTES..PAGE_BYTES + 300_000).contains(&bytes) && page.next.is_some(), "{bytes} bytes");
    assert_eq!(fixture.list(all_of(TENANT), 100).await.len(), stored.len());
}

/// The pages of 1, 2, 3, … tasks add up to the same listing.
pub async fn list_is_the_same_for_every_page_size(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = population(&fixture).await;
    for by_execute_at in [false, true] {
        let filter = Filter { by_execute_at, ..all_of(TENANT) };
        let whole = ids(&fixture.list(filter.clone(), 1_000).await);
        assert_eq!(whole.len(), stored.len());
        for page in [1, 2, 3, 5, whole.len() - 1, whole.len(), whole.len() + 1] {
            assert_eq!(ids(&fixture.list(filter.clone(), page).await), whole, "in pages of {page}");
        }
        let rare = Filter { states: vec![State::DeadLettered], kind: Some("kind.2".into()), ..filter };
        let whole = ids(&fixture.list(rare.clone(), 1_000).await);
        assert!(!whole.is_empty());
        assert_eq!(ids(&fixture.list(rare, 1).await), whole);
    }
}

/// Every filter by itself keeps the right tasks, also at its bounds: `after` is inclusive, `before`
/// is not.
pub async fn list_filters_by_each_field(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = population(&fixture).await;
    for (filter, keeps) in filters(&stored) {
        let expected: Vec<&Task> = stored.iter().rev().filter(|task| keeps(task)).collect();
        assert_same_tasks(&fixture.list(filter.clone(), 1_000).await, &expected, &filter);
    }
    let nothing = Filter { queue: Some("nowhere".into()), ..all_of(TENANT) };
    assert!(fixture.list(nothing, 10).await.is_empty());
}

/// A tenant lists its own tasks, live and final, and no others, whatever the filter.
pub async fn list_is_bound_to_the_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tenants = ["acme", "ACME", "acme ", "", "ácme"];
    for tenant in tenants {
        let done = fixture.running(task().tenant(tenant).label("l", "v")).await;
        fixture.apply(&done, complete(None)).await;
        fixture.insert_one(task().tenant(tenant).label("l", "v")).await;
    }
    for tenant in tenants {
        let labelled = Filter { metadata: [("l".to_owned(), "v".to_owned())].into(), ..all_of(tenant) };
        let urgent = Filter { priority_min: Some(0), by_execute_at: true, ..all_of(tenant) };
        let states = Filter { states: State::ALL.to_vec(), queue: Some("default".into()), ..all_of(tenant) };
        for filter in [all_of(tenant), labelled, urgent, states] {
            let listed = fixture.list(filter, 1).await;
            assert_eq!(listed.len(), 2);
            assert!(listed.iter().all(|task| task.tenant() == tenant), "{tenant:?} lists a task of another tenant");
        }
    }
    assert!(fixture.list(all_of("nobody"), 10).await.is_empty());
}

/// Labels are compared literally: no quoting, path, pattern or prefix has a meaning in them.
pub async fn list_filters_by_awkward_labels(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let labels = [
        ("a", "b"),
        ("a", "B"),
        ("A", "b"),
        ("a", "b "),
        ("a.b", "c"),
        ("a\"b", "c\"d"),
        ("$", "$.a"),
        ("$[0]", "%"),
        ("'", "''"),
        ("\\", "\\\\"),
        ("%", "_"),
        ("é", "e\u{301}"),
        ("e\u{301}", "é"),
        ("日本", "🗾"),
        ("", ""),
        ("a", ""),
        ("a", "null"),
        ("n", "1"),
        ("n", "1.0"),
        ("n", "true"),
        ("a]", "["),
        ("#", "/"),
        ("\u{1}", "\t\n"),
    ];
    let stored = fixture
        .insert(labels.iter().map(|(key, value)| task().label(key, value).label("all", "x").build()).collect())
        .await;
    for ((key, value), task) in labels.iter().zip(&stored) {
        let of = |more: &[(&str, &str)]| {
            let pairs = more.iter().copied().chain([(*key, *value)]);
            let metadata = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            Filter { metadata, ..all_of(TENANT) }
        };
        assert_eq!(ids(&fixture.list(of(&[]), 10).await), [task.id], "{key:?} = {value:?}");
        assert_eq!(ids(&fixture.list(of(&[("all", "x")]), 10).await), [task.id], "{key:?} = {value:?} and another");
        assert!(fixture.list(of(&[("all", "y")]), 10).await.is_empty(), "a task must have all labels");
    }
}

type Keeps = Box<dyn Fn(&Task) -> bool>;

fn in_order<'t>(stored: &'t [Task], keeps: &Keeps, by_execute_at: bool) -> Vec<&'t Task> {
    let mut kept: Vec<&Task> = stored.iter().filter(|task| keeps(task)).collect();
    if by_execute_at {
        kept.sort_by_key(|task| (task.execute_at, task.id));
    } else {
        kept.sort_by_key(|task| std::cmp::Reverse(task.id));
    }
    kept
}

/// Filters over [`population`], each with the predicate of the tasks that it must keep.
fn filters(stored: &[Task]) -> Vec<(Filter, Keeps)> {
    let of = || all_of(TENANT);
    let schedule = stored.iter().find_map(|task| task.body.schedule_id).expect("some have a schedule");
    let finished = stored.iter().filter_map(|task| task.completed_at).max().expect("some have finished");
    let mut filters: Vec<(Filter, Keeps)> = vec![
        (of(), Box::new(|_| true)),
        (Filter { kind: Some("kind.1".into()), ..of() }, Box::new(|task| task.lane.key.kind == "kind.1")),
        (Filter { queue: Some("q2".into()), ..of() }, Box::new(|task| task.lane.key.queue == "q2")),
        (Filter { kind: Some("kind.*".into()), ..of() }, Box::new(|task| task.lane.key.kind.starts_with("kind."))),
        (Filter { queue: Some("q*".into()), ..of() }, Box::new(|task| task.lane.key.queue.starts_with('q'))),
        (
            Filter { ordering_key: Some("own".into()), ..of() },
            Box::new(|task| task.body.ordering_key.as_deref() == Some("own")),
        ),
        (
            Filter { idempotency_key: Some("key.7".into()), ..of() },
            Box::new(|task| task.body.idempotency_key.as_deref() == Some("key.7")),
        ),
        (Filter { worker_id: Some("w".into()), ..of() }, Box::new(|task| task.worker_id() == Some("w"))),
        (Filter { worker_id: Some("nobody".into()), ..of() }, Box::new(|_| false)),
        (
            Filter { error_code: Some("expired".into()), ..of() },
            Box::new(|task| task.trail.last_error().is_some_and(|(_, error)| error.code == "expired")),
        ),
        (
            Filter { completed_after: Some(finished), ..of() },
            Box::new(move |task| task.completed_at.is_some_and(|at| at >= finished)),
        ),
        (
            Filter { completed_before: Some(finished), ..of() },
            Box::new(move |task| task.completed_at.is_some_and(|at| at < finished)),
        ),
        (Filter { schedule_id: Some(schedule), ..of() }, Box::new(move |task| task.body.schedule_id == Some(schedule))),
        (Filter { priority_min: Some(7), ..of() }, Box::new(|task| task.lane.key.priority >= 7)),
        (Filter { priority_min: Some(0), ..of() }, Box::new(|_| true)),
        (Filter { created_after: Some(at(20)), ..of() }, Box::new(|task| task.created_at >= at(20))),
        (Filter { created_before: Some(at(20)), ..of() }, Box::new(|task| task.created_at < at(20))),
        (Filter { execute_after: Some(at(50)), ..of() }, Box::new(|task| task.execute_at >= at(50))),
        (Filter { execute_before: Some(at(50)), ..of() }, Box::new(|task| task.execute_at < at(50))),
        (
            Filter { metadata: [("parity".to_owned(), "odd".to_owned())].into(), ..of() },
            Box::new(|task| task.body.metadata["parity"] == "odd"),
        ),
        (
            Filter { states: vec![State::Queued, State::Completed], ..of() },
            Box::new(|task| [State::Queued, State::Completed].contains(&task.state())),
        ),
        (
            Filter {
                states: vec![State::Pending, State::Running, State::DeadLettered],
                kind: Some("kind.2".into()),
                priority_min: Some(3),
                created_after: Some(at(5)),
                created_before: Some(at(70)),
                execute_after: Some(at(-10)),
                execute_before: Some(at(80)),
                metadata: [("parity".to_owned(), "even".to_owned())].into(),
                ..of()
            },
            Box::new(|task| {
                [State::Pending, State::Running, State::DeadLettered].contains(&task.state())
                    && task.lane.key.kind == "kind.2"
                    && task.lane.key.priority >= 3
                    && (at(5)..at(70)).contains(&task.created_at)
                    && (at(-10)..at(80)).contains(&task.execute_at)
                    && task.body.metadata["parity"] == "even"
            }),
        ),
    ];
    for state in State::ALL {
        filters.push((Filter { states: vec![state], ..of() }, Box::new(move |task| task.state() == state)));
    }
    filters
}

/// Ninety tasks in all states, in nine lanes, many with the same instants; and some of another
/// tenant.
async fn population(fixture: &StoreFixture<'_>) -> Vec<Task> {
    let schedules = [1, 2].map(|number| ScheduleId::from_uuid(Uuid::from_u128(number)));
    let mut dice = Dice::new(4);
    let mut stored = Vec::new();
    for number in 0..90_i64 {
        let of = task()
            .kind(&format!("kind.{}", number % 3))
            .queue(&format!("q{}", number % 9 / 3))
            .priority(u8::try_from(number % 9).unwrap())
            .created_at(at(number / 2))
            .due(at(i64::try_from(dice.below(12)).unwrap() * 10 - 20))
            .label("parity", if number % 2 == 0 { "even" } else { "odd" });
        let of = if number % 4 == 0 { of.schedule(schedules[usize::try_from(number / 4 % 2).unwrap()]) } else { of };
        let of = match number {
            7 => of.key("key.7", 1),
            10 => of.ordering_key("own"),
            _ => of,
        };
        stored.push(fixture.insert_one(of).await);
        fixture.insert_one(task().tenant("other").label("parity", "odd")).await;
    }
    fixture.advance(1_000);
    for (number, task) in stored.iter_mut().enumerate() {
        fixture.advance(1);
        *task = bring_to(fixture, task, number % 8).await;
    }
    stored
}

/// Brings a waiting task to one of eight ends. (Its place in its lane does not matter: the change
/// names it.)
async fn bring_to(fixture: &StoreFixture<'_>, task: &Task, end: usize) -> Task {
    let hold = |task: &Task| punctual_core::task::Hold {
        worker: "w".into(),
        node: None,
        since: fixture.now(),
        expires_at: at(9_000_000),
        deadline_at: at(9_000_000),
        lease_millis: task.body.timeout_millis,
    };
    if end == 0 {
        return task.clone();
    }
    if end == 1 {
        return fixture.apply(task, Event::Cancel).await;
    }
    if end == 2 {
        return fixture.apply(task, Event::Expire).await;
    }
    if end == 3 {
        return fixture.apply(task, Event::Claim(hold(task))).await;
    }
    let running = fixture.apply(task, Event::Lease(hold(task))).await;
    match end {
        4 => running,
        5 => fixture.apply(&running, complete(Some("1"))).await,
        6 => fixture.apply(&running, fail_for_good(&running)).await,
        _ => fixture.apply(&running, fail(&running)).await,
    }
}

fn assert_same_tasks(listed: &[Task], expected: &[&Task], filter: &Filter) {
    let expected_ids: Vec<_> = expected.iter().map(|task| task.id).collect();
    assert_eq!(ids(listed), expected_ids, "{filter:?}");
    for (listed, expected) in listed.iter().zip(expected) {
        assert_same(listed, expected);
    }
}
