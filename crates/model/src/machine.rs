//! The real state machine, asked in the model's small numbers.
//!
//! Every state change of the model is a [`Change`] that [`transition`] made; this module only turns
//! the question and the answer into other units. The machine is pure, so each question is put to it
//! once a thread and remembered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::state::{By, Change, Event, Failure, Position, State, transition};
use punctual_core::task::Hold;
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, FailedHow, RunError};

use crate::row::{Cause, HoldLeft, Letter, Mark, Stand, Version, small};

/// [`Event`], as far as it is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happening {
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
        /// The policy's.
        max_retries: u8,
        /// Lost workers that make a task poison.
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
    /// The new number of attempts; none leaves it.
    pub attempts: Option<u8>,
    /// The new number of lost workers; none leaves it.
    pub crashes: Option<u8>,
    /// Whether the run is now asked to stop.
    pub cancel_requested: bool,
    /// Ticks until it is due; none leaves it.
    pub due_in: Option<u8>,
    /// The new hold.
    pub hold: Option<HoldLeft>,
    /// What the run returned.
    pub result: Option<Letter>,
    /// Whether it does not expire any more.
    pub expiry_gone: bool,
    /// The steps to append to the trail.
    pub marks: Vec<Mark>,
}

/// The instant at which everything happens: only what is left from it is kept.
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
/// A tick, which is also the delay before a retry.
const TICK_MILLIS: u8 = 100;

type WriteCache = HashMap<(Stand, Happening), Option<Rc<Write>>>;

thread_local! {
    static KNOWN: RefCell<WriteCache> = RefCell::default();
    static COMPLETIONS: RefCell<HashMap<(Version, Letter), Rc<Write>>> = RefCell::default();
}

/// What [`transition`] makes of it; none where it is illegal.
pub fn decide(stand: Stand, happening: Happening) -> Option<Rc<Write>> {
    KNOWN.with_borrow_mut(|known| known.entry((stand, happening)).or_insert_with(|| ask(stand, happening)).clone())
}

/// [`Change::complete_held`].
pub fn complete_held(token: Version, letter: Letter) -> Rc<Write> {
    let make = || Rc::new(write(&Change::complete_held("", u64::from(token), Some(document(letter)), &by())));
    COMPLETIONS.with_borrow_mut(|known| Rc::clone(known.entry((token, letter)).or_insert_with(make)))
}

fn ask(stand: Stand, happening: Happening) -> Option<Rc<Write>> {
    let change = transition(&Position::from(stand), event(happening), &by()).ok()?;
    Some(Rc::new(write(&change)))
}

fn by() -> By<'static> {
    By { now: NOW, node: NodeId::new(1), actor: Actor::Node }
}

fn event(happening: Happening) -> Event<'static> {
    match happening {
        Happening::Claim(left) => Event::Claim(hold(left)),
        Happening::Start(left) => Event::Start(hold(left)),
        Happening::Lease(left) => Event::Lease(hold(left)),
        Happening::Complete(letter) => Event::Complete { result: Some(document(letter)), http_status: None },
        Happening::Fail { cause, max_retries, poison_after, is_under_breaker } => Event::Fail(Failure {
            how: match cause {
                Cause::Told { .. } => FailedHow::Failed,
                Cause::TimedOut => FailedHow::TimedOut,
                Cause::Lost => FailedHow::Lost,
            },
            error: RunError { code: cause.code().into(), message: "".into(), details: None },
            http_status: None,
            retryable: cause != Cause::Told { retryable: false },
            retry_after_millis: None,
            policy: RetryPolicy {
                max_retries: u32::from(max_retries),
                backoff: Backoff::Fixed,
                backoff_millis: u64::from(TICK_MILLIS),
                max_backoff_millis: u64::from(TICK_MILLIS),
                jitter: Jitter::None,
            },
            poison_after: u32::from(poison_after),
            is_under_breaker,
            random: 0,
        }),
        Happening::GiveBack => Event::GiveBack(NOW),
        Happening::Cancel => Event::Cancel,
        Happening::Stopped => Event::Stopped,
        Happening::Expire => Event::Expire,
        Happening::Redrive => Event::Redrive(None),
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
        marks: Mark::read(&change.trail),
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
