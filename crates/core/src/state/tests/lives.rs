//! Random lives: in any order of events, versions grow without gap, attempts stay within their
//! bound, and each step is an edge of the API's diagram.

use proptest::prelude::*;

use super::*;
use State::{Blocked, Cancelled, Completed, DeadLettered, Failed, Pending, Queued, Running};

/// The edges of the diagram in the API's contract, and the steps that change a task without moving
/// it (an edit, "run now", a request to stop).
#[rustfmt::skip]
pub(super) const EDGES: [(State, State); 23] = [
    (Blocked, Pending), (Pending, Queued), (Queued, Running), (Running, Completed),
    (Queued, Pending), (Running, Pending),
    (Running, DeadLettered), (DeadLettered, Pending), (DeadLettered, Cancelled),
    (Blocked, Cancelled), (Pending, Cancelled), (Queued, Cancelled),
    (Blocked, Failed), (Pending, Failed), (Queued, Failed),
    (Running, Cancelled),
    (Cancelled, Blocked), (Cancelled, Pending), (Failed, Blocked), (Failed, Pending),
    (Blocked, Blocked), (Pending, Pending), (Running, Running),
];

const MAX_RETRIES: u32 = 3;
const POISON_AFTER: u32 = 2;

/// A row as a store would keep it.
struct Row {
    position: Position,
    trail: Trail,
    held: bool,
}

impl Row {
    fn submitted(state: State) -> Self {
        let position = Position { state, version: 1, attempts: 0, crashes: 0, cancel_requested: false };
        Self { position, trail: by().submitted(state), held: false }
    }

    /// The conditional write. Returns false, and changes nothing, if the row is not as the change
    /// expects.
    fn apply(&mut self, change: &Change) -> bool {
        if (self.position.state, self.position.version) != (change.from, change.expected_version) {
            return false;
        }
        self.position = Position {
            state: change.to,
            version: change.version,
            attempts: change.attempts.unwrap_or(self.position.attempts),
            crashes: change.crashes.unwrap_or(self.position.crashes),
            cancel_requested: change.cancel_requested,
        };
        self.held = change.hold.is_some() || (change.cancel_requested && self.held);
        self.trail.extend(&change.trail);
        true
    }
}

fn events() -> impl Strategy<Value = Event<'static>> {
    let cause = prop_oneof![Just(FailureCause::Reported), Just(FailureCause::Timeout), Just(FailureCause::Lost)];
    let flags = (prop::bool::weighted(0.9), prop::bool::weighted(0.3));
    let failures = (cause, flags, prop::option::of(any::<u64>()), any::<u64>()).prop_map(
        |(cause, (retryable, is_under_breaker), retry_after_millis, random)| {
            let policy = RetryPolicy { jitter: Jitter::Full, ..policy(MAX_RETRIES) };
            Event::Fail(Failure {
                retryable,
                retry_after_millis,
                is_under_breaker,
                random,
                policy,
                poison_after: POISON_AFTER,
                ..failure(cause)
            })
        },
    );
    let edits = prop::option::of(0_i64..1_000).prop_map(|millis| {
        let execute_at = millis.map(|millis| NOW.plus_millis(millis));
        Event::Edit(Box::new(Edit { execute_at, ..Edit::default() }))
    });
    prop_oneof![
        2 => Just(Event::Unblock(NOW)),
        4 => Just(Event::Claim(hold())),
        4 => Just(Event::Start(hold())),
        4 => Just(Event::Lease(hold())),
        1 => Just(Event::Complete { result: None, http_status: None, dropped: None }),
        8 => failures,
        3 => (0_i64..1_000).prop_map(|millis| Event::GiveBack(NOW.plus_millis(millis))),
        1 => Just(Event::Cancel),
        1 => Just(Event::Stopped),
        1 => Just(Event::Expire),
        1 => any::<bool>().prop_map(|fail| Event::DependencyFailed { fail, parent: None }),
        2 => edits,
        1 => Just(Event::RunNow),
        4 => Just(Event::Redrive(None)),
        1 => Just(Event::Purge),
    ]
}

/// The attempts in a trail: claims since the last re-drive, without those that were given back or
/// not counted.
fn counted(entries: &[Entry<'_>]) -> u32 {
    entries.iter().fold(0, |counted, entry| match entry.step {
        Step::Redriven => 0,
        Step::Claimed => counted + 1,
        Step::GivenBack | Step::FailedUncounted { .. } => counted - 1,
        _ => counted,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn any_life_is_legal(blocked: bool, events in prop::collection::vec((events(), prop::bool::weighted(0.1)), 1..80)) {
        let mut row = Row::submitted(if blocked { Blocked } else { Pending });
        let mut before = row.position;
        for (event, late) in events {
            // Sometimes the decision is based on a read of the row before its last change.
            let read = if late { before } else { row.position };
            let Ok(change) = transition(&read, event, &by()) else { continue };
            let was = row.position;
            let steps = u64::try_from(change.trail.entries().count()).unwrap();
            prop_assert_eq!(change.version, change.expected_version + steps, "a version for each step");
            let applied = row.apply(&change);
            prop_assert_eq!(applied, read.version == was.version, "a decision from an older row changes nothing");
            if applied {
                before = was;
                prop_assert!(row.position.version > was.version);
            }
            prop_assert!(row.position.attempts <= MAX_RETRIES + 1, "{:?}", row.position);
            prop_assert!(row.position.crashes <= POISON_AFTER, "{:?}", row.position);
            prop_assert_eq!(row.held, row.position.state.is_held(), "held exactly in the held states");
            prop_assert!(!row.position.cancel_requested || row.position.state == Running);
        }
        let entries: Vec<Entry<'_>> = row.trail.entries().collect();
        prop_assert!(entries.iter().map(|entry| entry.version).eq(1..=row.position.version), "no gap in the trail");
        prop_assert_eq!(entries.last().unwrap().to, row.position.state);
        prop_assert_eq!(counted(&entries), row.position.attempts, "{:?}", entries);
        for pair in entries.windows(2) {
            prop_assert!(EDGES.contains(&(pair[0].to, pair[1].to)), "{:?} to {:?}", pair[0].to, pair[1]);
        }
    }
}
