//! Waiting tasks, one by one, in the order in which they come due.

use punctual_core::state::{Event, State};
use punctual_core::time::Timestamp;

use super::{MINUTE, retry_after};
use crate::fixtures::{TENANT, at, task};
use crate::store::{StoreFactory, StoreFixture};

/// The minute, the type and the queue of each upcoming task, read in pages.
async fn listed(fixture: &StoreFixture<'_>, from: i64, until: i64, page: usize) -> Vec<(i64, String, String)> {
    let (mut found, mut after) = (Vec::new(), (at(from * MINUTE), i64::MIN));
    loop {
        let until = at(until * MINUTE);
        let some = fixture.database.upcoming_tasks(TENANT, after, until, page).await.expect("upcoming_tasks answers");
        assert!(some.len() <= page);
        let Some(last) = some.last() else { return found };
        after = (last.due_at, last.number);
        let minute = |due_at: Timestamp| due_at.millis_since(at(0)) / MINUTE;
        found.extend(some.into_iter().map(|task| (minute(task.due_at), task.kind, task.queue)));
    }
}

fn names(minute: i64, kind: &str, queue: &str) -> (i64, String, String) {
    (minute, kind.to_owned(), queue.to_owned())
}

/// Four lanes and a stranger's, a retry that is due later than it was submitted for, and tasks that
/// are due at the same instant.
pub async fn waiting_tasks_are_listed_as_they_come_due(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task().kind("retried").queue("r")).await;
    fixture.apply(&running, retry_after(&running, 7 * 60_000)).await;
    let wish = |minute: i64, kind: &str| task().kind(kind).queue("q").due(at(minute * MINUTE));
    let minutes = [(9, "a"), (3, "b"), (5, "a"), (5, "b"), (5, "a"), (1, "c"), (4, "b"), (8, "c")];
    for (minute, kind) in minutes {
        fixture.insert_one(wish(minute, kind)).await;
    }
    fixture.insert_one(wish(4, "a").tenant("other")).await;
    let cancelled = fixture.insert_one(wish(6, "a")).await;
    fixture.apply(&cancelled, Event::Cancel).await;
    let expected = [
        names(3, "b", "q"),
        names(4, "b", "q"),
        names(5, "a", "q"),
        names(5, "b", "q"),
        names(5, "a", "q"),
        names(7, "retried", "r"),
        names(8, "c", "q"),
    ];
    for page in [1, 2, 3, 100] {
        assert_eq!(listed(&fixture, 3, 9, page).await, expected, "in pages of {page}");
    }
    assert_eq!(listed(&fixture, 3, 3, 9).await, []);
}

/// The tasks behind the first of an ordering key wait for more than their time.
pub async fn tasks_without_their_turn_are_listed_too(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let ordered = |minute: i64| task().kind("k").ordering_key("k").due(at(minute * MINUTE));
    for minute in [5, 6, 6, 9] {
        fixture.insert_one(ordered(minute)).await;
    }
    fixture.resolve().await;
    let parent = fixture.insert_one(task().kind("parent").due(at(7 * MINUTE))).await;
    let blocked = fixture.insert_one(task().kind("child").due(at(8 * MINUTE)).depends_on(&[parent.id])).await;
    assert_eq!(blocked.state(), State::Blocked);
    let held = fixture.running(task().kind("held")).await;
    assert_eq!(held.state(), State::Running);
    for page in [1, 2, 100] {
        let found = listed(&fixture, 0, 20, page).await;
        let minutes: Vec<(i64, &str)> = found.iter().map(|(minute, kind, _)| (*minute, kind.as_str())).collect();
        assert_eq!(minutes, [(5, "k"), (6, "k"), (6, "k"), (7, "parent"), (9, "k")], "in pages of {page}");
    }
}
