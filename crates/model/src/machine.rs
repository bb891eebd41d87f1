//! The real state machine, in the model's small numbers.
//!
//! Every state change of the model is a [`Change`] made by [`transition`]; this module only
//! converts units. The machine is pure, so each result is computed once per thread and cached.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use punctual_core::failure::FailureCause;
use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::state::{By, Change, Event, Failure, Position, State, transition};
use punctual_core::task::Hold;
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, RunError};

use crate::row::{Cause, HoldLeft, Letter, RowPosition, StepMark, Version, small};

/// [`Event`], as far as it is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelEvent {
    /// [`Event::Claim`].
    Claim(HoldLeft),
    /// [`Event::Start`].
    Start(HoldLeft),
    /// [`Event::Lease`].
    Lease(HoldLeft),
    /// [`Event::Complete`].
    Complete(Letter),
    /// [`Event::Fail`].
    Fail {
        /// Why.
        cause: Cause,
        /// The retries that the policy allows.
        max_retries: u8,
        /// The number of lost workers that makes a task poison.
        poison_after: u8,
        /// Whether a breaker is open over the task.
        is_under_breaker: bool,
    },
    /// [`Event::GiveBack`], due at once.
    GiveBack,
    /// [`Event::Cancel`].
    Cancel,
    /// [`Event::Stopped`].
    Stopped,
    /// [`Event::Expire`].
    Expire,
    /// [`Event::Redrive`].
    Redrive,
}

/// [`Change`] in small numbers.
#[derive(Clone, Debug)]
pub struct Write {
    /// The state the row must be in.
    pub from: State,
    /// The version the row must have.
    pub expected_version: Version,
    /// The new state.
    pub to: State,
    /// The new version.
    pub version: Version,
    /// The new number of attempts; none keeps it.
    pub attempts: Option<u8>,
    /// The new number of lost workers; none keeps it.
    pub crashes: Option<u8>,
    /// Whether the run is now asked to stop.
    pub cancel_requested: bool,
    /// Ticks until it is due; none keeps them.
    pub due_in: Option<u8>,
    /// The new hold.
    pub hold: Option<HoldLeft>,
    /// What the run returned.
    pub result: Option<Letter>,
    /// Whether the expiry is removed.
    pub expiry_gone: bool,
    /// The steps to append to the trail.
    pub marks: Vec<StepMark>,
}

/// The instant at which everything happens. Rows keep only the time from it.
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
/// A tick, which is also the delay before a retry.
const TICK_MILLIS: u8 = 100;

type WriteCache = HashMap<(RowPosition, ModelEvent), Option<Rc<Write>>>;

thread_local! {
    static KNOWN: RefCell<WriteCache> = RefCell::default();
    static COMPLETIONS: RefCell<HashMap<(Version, Letter), Rc<Write>>> = RefCell::default();
}

/// The write that [`transition`] makes for the event; none if it is illegal.
pub fn decide(position: RowPosition, event: ModelEvent) -> Option<Rc<Write>> {
    KNOWN.with_borrow_mut(|known| known.entry((position, event)).or_insert_with(|| ask(position, event)).clone())
}

/// [`Change::complete_held`].
pub fn complete_held(token: Version, letter: Letter) -> Rc<Write> {
    let make = || Rc::new(write(&Change::complete_held("", u64::from(token), Some(document(letter)), &by())));
    COMPLETIONS.with_borrow_mut(|known| Rc::clone(known.entry((token, letter)).or_insert_with(make)))
}

fn ask(position: RowPosition, event: ModelEvent) -> Option<Rc<Write>> {
    let change = transition(&Position::from(position), core_event(event), &by()).ok()?;
    Some(Rc::new(write(&change)))
}

fn by() -> By<'static> {
    By { now: NOW, node: NodeId::new(1), actor: Actor::Node }
}

fn core_event(event: ModelEvent) -> Event<'static> {
    match event {
        ModelEvent::Claim(left) => Event::Claim(hold(left)),
        ModelEvent::Start(left) => Event::Start(hold(left)),
        ModelEvent::Lease(left) => Event::Lease(hold(left)),
        ModelEvent::Complete(letter) => {
            Event::Complete { result: Some(document(letter)), http_status: None, dropped: None }
        }
        ModelEvent::Fail { cause, max_retries, poison_after, is_under_breaker } => Event::Fail(Failure {
            cause: match cause {
                Cause::Reported { .. } => FailureCause::Reported,
                Cause::TimedOut => FailureCause::Timeout,
                Cause::Lost => FailureCause::Lost,
            },
            error: RunError { code: cause.code().into(), message: "".into(), details: None },
            http_status: None,
            retryable: cause != Cause::Reported { retryable: false },
            retry_after_millis: None,
            policy: RetryPolicy {
                max_retries: u32::from(max_retries),
                backoff: Backoff::Fixed,
                backoff_millis: u64::from(TICK_MILLIS),
                max_backoff_millis: u64::from(TICK_MILLIS),
                jitter: Jitter::None,
                ..RetryPolicy::default()
            },
            poison_after: u32::from(poison_after),
            is_under_breaker,
            random: 0,
        }),
        ModelEvent::GiveBack => Event::GiveBack(NOW),
        ModelEvent::Cancel => Event::Cancel,
        ModelEvent::Stopped => Event::Stopped,
        ModelEvent::Expire => Event::Expire,
        ModelEvent::Redrive => Event::Redrive(None),
    }
}

fn write(change: &Change) -> Write {
    Write {
        from: change.from,
        expected_version: small(change.expected_version),
        to: change.to,
        version: small(change.version),
        attempts: change.attempts.map(small),
        crashes: change.crashes.map(small),
        cancel_requested: change.cancel_requested,
        due_in: change.due_at.map(ticks),
        hold: change.hold.as_ref().map(|hold| HoldLeft {
            ticks: ticks(hold.expires_at),
            deadline: ticks(hold.deadline_at),
            of_node: hold.node.is_some(),
        }),
        result: change.result.as_ref().map(letter),
        expiry_gone: change.edit.as_ref().is_some_and(|edit| edit.expires_at == Some(None)),
        marks: StepMark::read(&change.trail),
    }
}

fn hold(left: HoldLeft) -> Hold {
    Hold {
        worker: String::new(),
        node: left.of_node.then(|| NodeId::new(2)),
        since: NOW,
        expires_at: instant(left.ticks),
        deadline_at: instant(left.deadline),
        lease_millis: u64::from(left.ticks) * u64::from(TICK_MILLIS),
    }
}

fn instant(ticks: u8) -> Timestamp {
    NOW.plus_millis(i64::from(ticks) * i64::from(TICK_MILLIS))
}

fn ticks(instant: Timestamp) -> u8 {
    small(instant.millis_since(NOW) / i64::from(TICK_MILLIS))
}

fn document(letter: Letter) -> Json {
    let text = match letter {
        Letter::A => "\"a\"",
        Letter::B => "\"b\"",
    };
    Json::parse(text).expect("invariant: a quoted letter is JSON")
}

fn letter(document: &Json) -> Letter {
    if document.get() == "\"a\"" { Letter::A } else { Letter::B }
}
