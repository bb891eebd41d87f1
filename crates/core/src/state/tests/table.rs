//! Every state × every event, as a table: a change of the machine shows here first.

use super::*;
use State::{Blocked, Cancelled, Completed, DeadLettered, Failed, Pending, Queued, Running};

/// Every kind of event, in every variant that has an outcome of its own.
pub(super) fn events() -> Vec<(&'static str, Event<'static>)> {
    let hopeless = Failure { retryable: false, ..failure(FailureCause::Reported) };
    let used_up = Failure { policy: policy(0), ..failure(FailureCause::Reported) };
    let poison = Failure { poison_after: 1, ..failure(FailureCause::Lost) };
    vec![
        ("unblock", Event::Unblock(NOW)),
        ("claim", Event::Claim(hold())),
        ("start", Event::Start(hold())),
        ("lease", Event::Lease(hold())),
        ("complete", Event::Complete { result: None, http_status: None, dropped: None }),
        ("fail, retries left", Event::Fail(failure(FailureCause::Reported))),
        ("fail, retries used up", Event::Fail(used_up)),
        ("fail, not worth a retry", Event::Fail(hopeless)),
        ("fail while a breaker is open", Event::Fail(under_breaker(FailureCause::Reported))),
        ("time out, retries left", Event::Fail(failure(FailureCause::Timeout))),
        ("worker lost, retries left", Event::Fail(failure(FailureCause::Lost))),
        ("worker lost too often", Event::Fail(poison)),
        ("give back", Event::GiveBack(NOW)),
        ("cancel", Event::Cancel),
        ("stopped", Event::Stopped),
        ("expire", Event::Expire),
        ("dependency failed, policy cancel", Event::DependencyFailed { fail: false, parent: None }),
        ("dependency failed, policy fail", Event::DependencyFailed { fail: true, parent: None }),
        ("edit", Event::Edit(Box::default())),
        ("run now", Event::RunNow),
        ("re-drive", Event::Redrive(None)),
        ("purge", Event::Purge),
        ("re-drive with dependents", Event::RedriveWithDependents(None)),
        ("revive, waits for a parent", Event::Revive(None)),
        ("revive, waits for none", Event::Revive(Some(NOW))),
    ]
}

/// The number of an event's kind. A new kind does not compile until it is numbered here, and then
/// must be in the table.
fn kind(event: &Event<'_>) -> usize {
    match event {
        Event::Unblock(_) => 0,
        Event::Claim(_) => 1,
        Event::Start(_) => 2,
        Event::Lease(_) => 3,
        Event::Complete { .. } => 4,
        Event::Fail(_) => 5,
        Event::GiveBack(_) => 6,
        Event::Cancel => 7,
        Event::Stopped => 8,
        Event::Expire => 9,
        Event::DependencyFailed { .. } => 10,
        Event::Edit(_) => 11,
        Event::RunNow => 12,
        Event::Redrive(_) => 13,
        Event::Purge => 14,
        Event::RedriveWithDependents(_) => 15,
        Event::Revive(_) => 16,
    }
}

/// A row: the event, and what becomes of a task in each state. The columns are BLOCKED, PENDING,
/// QUEUED, RUNNING, RUNNING and asked to stop, and the four final states.
type Row = (&'static str, [Option<State>; 9]);

const NO: Option<State> = None;
const BLO: Option<State> = Some(Blocked);
const PEN: Option<State> = Some(Pending);
const QUE: Option<State> = Some(Queued);
const RUN: Option<State> = Some(Running);
const COM: Option<State> = Some(Completed);
const CAN: Option<State> = Some(Cancelled);
const FAI: Option<State> = Some(Failed);
const DEA: Option<State> = Some(DeadLettered);

#[rustfmt::skip]
const TABLE: [Row; 25] = [
    //                                  BLO  PEN  QUE  RUN  stop COM CAN FAI DEA
    ("unblock",                         [PEN, NO,  NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("claim",                           [NO,  QUE, NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("start",                           [NO,  NO,  RUN, NO,  NO,  NO, NO, NO, NO ]),
    ("lease",                           [NO,  RUN, NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("complete",                        [NO,  NO,  NO,  COM, CAN, NO, NO, NO, NO ]),
    ("fail, retries left",              [NO,  NO,  NO,  PEN, CAN, NO, NO, NO, NO ]),
    ("fail, retries used up",           [NO,  NO,  NO,  DEA, CAN, NO, NO, NO, NO ]),
    ("fail, not worth a retry",         [NO,  NO,  NO,  DEA, CAN, NO, NO, NO, NO ]),
    ("fail while a breaker is open",    [NO,  NO,  NO,  PEN, CAN, NO, NO, NO, NO ]),
    ("time out, retries left",          [NO,  NO,  NO,  PEN, CAN, NO, NO, NO, NO ]),
    ("worker lost, retries left",       [NO,  NO,  NO,  PEN, CAN, NO, NO, NO, NO ]),
    ("worker lost too often",           [NO,  NO,  NO,  DEA, CAN, NO, NO, NO, NO ]),
    ("give back",                       [NO,  NO,  PEN, PEN, CAN, NO, NO, NO, NO ]),
    ("cancel",                          [CAN, CAN, CAN, RUN, NO,  NO, NO, NO, NO ]),
    ("stopped",                         [NO,  NO,  NO,  NO,  CAN, NO, NO, NO, NO ]),
    ("expire",                          [FAI, FAI, FAI, NO,  NO,  NO, NO, NO, NO ]),
    ("dependency failed, policy cancel",[CAN, NO,  NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("dependency failed, policy fail",  [FAI, NO,  NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("edit",                            [BLO, PEN, NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("run now",                         [NO,  PEN, NO,  NO,  NO,  NO, NO, NO, NO ]),
    ("re-drive",                        [NO,  NO,  NO,  NO,  NO,  NO, NO, NO, PEN]),
    ("purge",                           [NO,  NO,  NO,  NO,  NO,  NO, NO, NO, CAN]),
    ("re-drive with dependents",        [NO,  NO,  NO,  NO,  NO,  NO, NO, NO, PEN]),
    ("revive, waits for a parent",      [NO,  NO,  NO,  NO,  NO,  NO, BLO, BLO, NO ]),
    ("revive, waits for none",          [NO,  NO,  NO,  NO,  NO,  NO, PEN, PEN, NO ]),
];

/// The columns of the table.
pub(super) fn positions() -> [Position; 9] {
    let asked = Position { cancel_requested: true, ..at(Running) };
    let [blocked, pending, queued, running, completed, cancelled, failed, dead] = State::ALL.map(at);
    [blocked, pending, queued, running, asked, completed, cancelled, failed, dead]
}

#[test]
fn every_state_meets_every_event_as_the_table_says() {
    let events = events();
    assert_eq!(events.len(), TABLE.len());
    let kinds: std::collections::BTreeSet<usize> = events.iter().map(|(_, event)| kind(event)).collect();
    assert!(kinds.into_iter().eq(0..17), "every kind of event is in the table");
    for ((name, event), (row, expected)) in events.into_iter().zip(TABLE) {
        assert_eq!(name, row);
        for (position, expected) in positions().iter().zip(expected) {
            let answer = transition(position, event.clone(), &by());
            assert_eq!(answer.as_ref().ok().map(|change| change.to), expected, "{name} at {position:?}");
            match answer {
                Err(Illegal { state }) => assert_eq!(state, position.state),
                Ok(change) => assert_fits(&change, position),
            }
        }
    }
}

/// What every change has in common.
fn assert_fits(change: &Change, position: &Position) {
    assert_eq!((change.from, change.expected_version), (position.state, position.version));
    assert_eq!((change.at, &change.tenant), (NOW, &None));
    let entries: Vec<Entry<'_>> = change.trail.entries().collect();
    let last = entries.last().expect("a change is a step");
    assert_eq!((last.to, last.version), (change.to, change.version), "the trail ends where the change does");
    let versions: Vec<u64> = entries.iter().map(|entry| entry.version).collect();
    assert!(
        versions.iter().copied().eq(position.version + 1..=change.version),
        "a version for each step: {versions:?}"
    );
    for entry in &entries {
        assert_eq!((entry.at, entry.node, &entry.actor), (NOW, NODE, &by().actor));
    }
    assert_eq!(change.hold.is_some(), change.to.is_held() && !change.cancel_requested, "the hold fits the state");
    assert!(
        change.due_at.is_none() || matches!(change.to, State::Pending | State::Blocked),
        "only a waiting task is due"
    );
}

#[test]
fn only_dead_letters_and_failed_children_leave_their_end() {
    for position in positions().into_iter().filter(|position| position.state.is_final()) {
        for (name, event) in events() {
            let legal = transition(&position, event, &by()).is_ok();
            let leaves = match position.state {
                DeadLettered => matches!(name, "re-drive" | "re-drive with dependents" | "purge"),
                Cancelled | Failed => name.starts_with("revive"),
                _ => false,
            };
            assert_eq!(legal, leaves, "{name} at {position:?}");
        }
    }
}
