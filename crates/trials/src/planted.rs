//! Bugs to plant in the product, to see that the trials notice.
//!
//! The product runs unchanged on a store that misbehaves: each bug is a [`Mischief`], a layer around the real store
//! that spoils one of its calls. `punctual-planted` is the product with the bug that [`Bug::VARIABLE`] names.
//!
//! Invariant: every bug has a law that must tell of it, and a test that demands it.

mod claiming;
mod inserting;
mod settling;
mod spoilt;
mod sweeping;

use std::sync::Arc;

use punctual_core::store::Store;

use self::spoilt::{Mischief, Spoilt};
use crate::checker::Law;

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident, $name:literal, $law:ident, $kills:literal, $mischief:expr;)+) => {
        /// One mistake in the store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[$doc])+ $bug,)+ }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Bug] = &[$(Bug::$bug),+];

            /// Its name, for the environment.
            pub const fn name(self) -> &'static str {
                match self { $(Bug::$bug => $name,)+ }
            }

            /// The law that must tell of it.
            pub const fn breaks(self) -> Law {
                match self { $(Bug::$bug => Law::$law,)+ }
            }

            /// How many kills it takes to show itself.
            pub const fn kills(self) -> usize {
                match self { $(Bug::$bug => $kills,)+ }
            }

            /// The store with this bug in it.
            pub fn around(self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
                match self { $(Bug::$bug => spoilt(inner, $mischief),)+ }
            }
        }
    };
}

bugs! {
    /// A submission is answered, and written a little later.
    AckBeforeCommit, "ack-before-commit", AcknowledgedIsKept, 1, inserting::AckBeforeCommit;
    /// A repeated key makes another task.
    KeyIgnored, "key-ignored", NothingInvented, 0, inserting::KeyIgnored;
    /// A due instant is rounded down to the second.
    DueRoundedDown, "due-rounded-down", NeverEarly, 0, inserting::DueRoundedDown;
    /// An expiry is forgotten.
    ExpiryForgotten, "expiry-forgotten", NeverExpired, 0, inserting::ExpiryForgotten;
    /// A completion by an old token is written against the row as it stands.
    TokenIgnored, "token-ignored", OneCompletion, 0, settling::TokenIgnored;
    /// A heartbeat by an old token extends the lease of whoever holds the task now.
    HeartbeatTokenIgnored, "heartbeat-token-ignored", TokensFence, 0, settling::HeartbeatTokenIgnored;
    /// The first completion of every task is answered and not written.
    CompletionUnwritten, "completion-unwritten", AnswersHold, 0, settling::CompletionUnwritten::default();
    /// The cancellation of a waiting task is answered and not written.
    CancelUnwritten, "cancel-unwritten", CancelHolds, 0, settling::CancelUnwritten;
    /// The request to stop a running task is answered and not written.
    StopUnwritten, "stop-unwritten", AnswersHold, 0, settling::StopUnwritten;
    /// A new time is written into the trail and not into the row.
    RescheduleIgnored, "reschedule-ignored", EditHolds, 0, settling::RescheduleIgnored;
    /// A failed attempt is counted twice.
    AttemptCountedTwice, "attempt-counted-twice", AttemptsCounted, 0, settling::AttemptCountedTwice;
    /// A retry does not wait for its delay.
    RetryAtOnce, "retry-at-once", NeverEarly, 0, settling::RetryAtOnce;
    /// A re-drive goes on counting where the attempts were used up.
    RedriveKeepsAttempts, "redrive-keeps-attempts", AttemptsCounted, 0, settling::RedriveKeepsAttempts;
    /// A worker is given a task that another one has just got.
    HandedOutTwice, "handed-out-twice", TokensFence, 0, claiming::HandedOutTwice::default();
    /// A lease is shorter than its worker is told.
    LeaseCutShort, "lease-cut-short", LeaseIsKept, 0, claiming::LeaseCutShort;
    /// The sweep for due tasks finds nothing.
    SweepOff, "sweep-off", EverythingEnds, 1, sweeping::SweepOff;
    /// The reaper finds nothing.
    ReaperBlind, "reaper-blind", NothingHeldForEver, 0, sweeping::ReaperBlind;
}

impl Bug {
    /// The environment variable that names the bug to plant.
    pub const VARIABLE: &'static str = "TRIALS_PLANTED_BUG";

    /// The bug with this name.
    pub fn named(name: &str) -> Option<Bug> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

/// The store with the bug that the environment names, or the store itself.
pub fn from_environment(inner: Arc<dyn Store>) -> Arc<dyn Store> {
    match std::env::var(Bug::VARIABLE) {
        Ok(name) => Bug::named(&name).unwrap_or_else(|| panic!("{name:?} is no bug of ours")).around(inner),
        Err(_) => inner,
    }
}

fn spoilt(inner: Arc<dyn Store>, mischief: impl Mischief + 'static) -> Arc<dyn Store> {
    Arc::new(Spoilt { inner, mischief })
}
