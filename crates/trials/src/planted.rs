//! Bugs to plant in the product, to prove that the trials find them.
//!
//! The product runs unchanged on a store that misbehaves: each bug is a `Mischief`, a layer around
//! the real store that spoils one of its calls. `punctual-planted` is the product with the bug that
//! [`Bug::VARIABLE`] names.
//!
//! Invariant: every bug has a law that must find it, and a test that demands it.

mod claiming;
mod inserting;
mod racing;
mod settling;
mod spoilt;
mod sweeping;

use std::sync::Arc;

use punctual_core::store::Store;

use self::spoilt::{Mischief, Spoilt};
use crate::checker::Law;
use crate::races::Kind;

/// The trial that finds a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The trial of `kill -9`, with this many kills.
    Kills(usize),
    /// The trial of this kind of race.
    Races(Kind),
    /// The trial of a cluster.
    Cluster,
}

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident, $name:literal, $law:ident, $trial:expr, $mischief:expr;)+) => {
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

            /// The law that must find it.
            pub const fn breaks(self) -> Law {
                match self { $(Bug::$bug => Law::$law,)+ }
            }

            /// The trial that finds it.
            pub const fn shows_in(self) -> Trial {
                match self { $(Bug::$bug => $trial,)+ }
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
    AckBeforeCommit, "ack-before-commit", AcknowledgedIsKept, Trial::Kills(1), inserting::AckBeforeCommit;
    /// A repeated key makes another task.
    KeyIgnored, "key-ignored", NothingInvented, Trial::Kills(0), inserting::KeyIgnored;
    /// A due instant is rounded down to the second.
    DueRoundedDown, "due-rounded-down", NeverEarly, Trial::Kills(0), inserting::DueRoundedDown;
    /// An expiry is forgotten.
    ExpiryForgotten, "expiry-forgotten", NeverExpired, Trial::Kills(0), inserting::ExpiryForgotten;
    /// An ordering key is forgotten.
    OrderForgotten, "order-forgotten", InTurn, Trial::Kills(0), inserting::OrderForgotten;
    /// A task does not wait for the last of its dependencies.
    ParentForgotten, "parent-forgotten", DependenciesHold, Trial::Kills(0), inserting::ParentForgotten;
    /// Webhooks of a limited queue are kept in another one.
    LimitEvaded, "limit-evaded", LimitHolds, Trial::Kills(0), inserting::LimitEvaded;
    /// A completion by an old token is written to the current row.
    TokenIgnored, "token-ignored", OneCompletion, Trial::Kills(0), settling::TokenIgnored;
    /// A heartbeat by an old token extends the lease of the current holder.
    HeartbeatTokenIgnored, "heartbeat-token-ignored", TokensFence, Trial::Kills(0), settling::HeartbeatTokenIgnored;
    /// The first completion of every task is answered and not written.
    CompletionUnwritten, "completion-unwritten", AnswersHold, Trial::Kills(0), settling::CompletionUnwritten::default();
    /// The cancellation of a waiting task is answered and not written.
    CancelUnwritten, "cancel-unwritten", CancelHolds, Trial::Kills(0), settling::CancelUnwritten;
    /// The request to stop a running task is answered and not written.
    StopUnwritten, "stop-unwritten", AnswersHold, Trial::Kills(0), settling::StopUnwritten;
    /// A new time is written into the trail and not into the row.
    RescheduleIgnored, "reschedule-ignored", EditHolds, Trial::Kills(0), settling::RescheduleIgnored;
    /// A failed attempt is counted twice.
    AttemptCountedTwice, "attempt-counted-twice", AttemptsCounted, Trial::Kills(0), settling::AttemptCountedTwice;
    /// A retry does not wait for its delay.
    RetryAtOnce, "retry-at-once", NeverEarly, Trial::Kills(0), settling::RetryAtOnce;
    /// A re-drive keeps the used-up attempts.
    RedriveKeepsAttempts, "redrive-keeps-attempts", AttemptsCounted, Trial::Kills(0), settling::RedriveKeepsAttempts;
    /// A worker gets a task that another one has just got.
    HandedOutTwice, "handed-out-twice", TokensFence, Trial::Kills(0), claiming::HandedOutTwice::default();
    /// A lease is shorter than the answer to its worker says.
    LeaseCutShort, "lease-cut-short", LeaseIsKept, Trial::Kills(0), claiming::LeaseCutShort;
    /// An instant of a schedule fires twice: a second node does not know of the first task.
    FiredTwice, "fired-twice", EachInstantOnce, Trial::Kills(0), claiming::FiredTwice::default();
    /// The sweep for due tasks finds nothing.
    SweepOff, "sweep-off", EverythingEnds, Trial::Kills(1), sweeping::SweepOff;
    /// The reaper finds nothing.
    ReaperBlind, "reaper-blind", NothingHeldForever, Trial::Kills(0), sweeping::ReaperBlind;
    /// A slow node claims under a term that has ended.
    TermsIgnored, "terms-ignored", OneOwner, Trial::Cluster, claiming::TermsIgnored;
    /// A completion that lost against another outcome is answered as accepted.
    LostCompletionTaken, "lost-completion-taken", OneCompletion, Trial::Races(Kind::DifferentCompletions), racing::LostTaken(racing::completes);
    /// A cancellation that lost against an outcome or a claim is answered as accepted.
    LostCancelTaken, "lost-cancel-taken", AnswersHold, Trial::Races(Kind::CompleteAgainstCancel), racing::LostTaken(racing::cancels);
    /// An edit that lost against a claim or another edit is answered as accepted.
    LostEditTaken, "lost-edit-taken", AnswersHold, Trial::Races(Kind::EditAgainstClaim), racing::LostTaken(racing::edits);
    /// A re-drive that lost against another one is answered as accepted.
    LostRedriveTaken, "lost-redrive-taken", AnswersHold, Trial::Races(Kind::RedriveTwice), racing::LostTaken(racing::redrives);
    /// A claim takes a task that was cancelled after its read.
    CancelledHandedOut, "cancelled-handed-out", CancelHolds, Trial::Races(Kind::CancelAgainstLease), racing::CancelledHandedOut::default();
    /// A heartbeat extends a lease that has run out.
    LeaseRevived, "lease-revived", TokensFence, Trial::Races(Kind::LateHeartbeat), racing::LeaseRevived;
    /// A key is looked up, and used a moment later without a lock.
    KeyUnlocked, "key-unlocked", NothingInvented, Trial::Races(Kind::SameKey), racing::KeyUnlocked::default();
    /// A claim returns the payload from before an edit.
    StaleBody, "stale-body", EditHolds, Trial::Races(Kind::EditAgainstClaim), racing::StaleBody::default();
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
        Ok(name) => {
            Bug::named(&name).unwrap_or_else(|| panic!("{name:?} is not the name of a planted bug")).around(inner)
        }
        Err(_) => inner,
    }
}

fn spoilt(inner: Arc<dyn Store>, mischief: impl Mischief + 'static) -> Arc<dyn Store> {
    Arc::new(Spoilt { inner, mischief })
}
