//! The kinds of races: how each is run, and its legal outcomes.

use std::time::Duration;

use super::legal::{Legal, RoundOutcome};
use super::round::Round;
use super::{dispatch, expiry, keys, settling, twice};

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident, $name:literal, $at_once:expr, $seats:expr, $file:ident, $play:ident, $table:ident;)+) => {
        /// A kind of race.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])+ $kind,)+ }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$kind),+];

            /// Its name, for the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)+ }
            }

            /// How many rounds run at a time.
            pub const fn at_once(self) -> usize {
                match self { $(Kind::$kind => $at_once,)+ }
            }

            /// The maximum number of contenders.
            pub const fn seats(self) -> usize {
                match self { $(Kind::$kind => $seats,)+ }
            }

            /// Its legal outcomes.
            pub const fn table(self) -> &'static [Legal] {
                match self { $(Kind::$kind => $file::$table,)+ }
            }

            /// Runs one round.
            pub async fn play(self, round: &mut Round) -> RoundOutcome {
                match self { $(Kind::$kind => Box::pin($file::$play(round)).await,)+ }
            }
        }
    };
}

/// Rounds that wait for the end of a lease.
const SLOW: usize = 256;
/// Rounds in which a poll waits for a while without a task.
const WAITING: usize = 48;
/// Rounds that end at once: more would only wait for each other.
const QUICK: usize = 8;
/// Rounds of a hundred connections.
const CROWDED: usize = 2;

kinds! {
    /// A worker comes back after another one has got its task, and both settle.
    LateCompletion, "late-completion", SLOW, 2, expiry, late_completion, LATE_COMPLETION;
    /// The same after a flood of heartbeats.
    LateFlood, "late-flood", SLOW, 2, expiry, late_flood, LATE_FLOOD;
    /// A heartbeat about when the lease ends.
    LateHeartbeat, "late-heartbeat", SLOW, 2, expiry, late_heartbeat, LATE_HEARTBEAT;
    /// A completion about when the lease ends.
    CompletionAtExpiry, "completion-at-expiry", SLOW, 2, expiry, completion_at_expiry, COMPLETION_AT_EXPIRY;
    /// A cancellation and a worker's poll.
    CancelAgainstLease, "cancel-against-lease", WAITING, 2, dispatch, cancel_against_lease, CANCEL_AGAINST_LEASE;
    /// A cancellation and a webhook.
    CancelAgainstWebhook, "cancel-against-webhook", QUICK, 1, dispatch, cancel_against_webhook, CANCEL_AGAINST_WEBHOOK;
    /// A new time and a worker's poll.
    RescheduleAgainstClaim, "reschedule-against-claim", WAITING, 2, dispatch, reschedule_against_claim, RESCHEDULE_AGAINST_CLAIM;
    /// A new payload and a worker's poll.
    EditAgainstClaim, "edit-against-claim", QUICK, 2, dispatch, edit_against_claim, EDIT_AGAINST_CLAIM;
    /// The same, with `If-Match`.
    ConditionalEditAgainstClaim, "conditional-edit-against-claim", QUICK, 2, dispatch, conditional_edit_against_claim, CONDITIONAL_EDIT_AGAINST_CLAIM;
    /// Two new payloads, both with the same `If-Match`.
    ConditionalEdits, "conditional-edits", QUICK, 2, twice, conditional_edits, CONDITIONAL_EDITS;
    /// One idempotency key from a hundred connections.
    SameKey, "same-key", CROWDED, keys::CONNECTIONS, keys, same_key, SAME_KEY;
    /// The same with two bodies.
    SameKeyTwoBodies, "same-key-two-bodies", CROWDED, keys::CONNECTIONS, keys, same_key_two_bodies, SAME_KEY_TWO_BODIES;
    /// One completion, several times.
    SameCompletion, "same-completion", QUICK, settling::REPORTERS, settling, same_completion, SAME_COMPLETION;
    /// Two completions by one token with different results.
    DifferentCompletions, "different-completions", QUICK, 2, settling, different_completions, DIFFERENT_COMPLETIONS;
    /// A completion and a cancellation.
    CompleteAgainstCancel, "complete-against-cancel", QUICK, 2, settling, complete_against_cancel, COMPLETE_AGAINST_CANCEL;
    /// A cancellation and a flood of heartbeats.
    CancelAgainstHeartbeats, "cancel-against-heartbeats", QUICK, 2, settling, cancel_against_heartbeats, CANCEL_AGAINST_HEARTBEATS;
    /// A completion and a failure.
    CompleteAgainstFail, "complete-against-fail", QUICK, 2, settling, complete_against_fail, COMPLETE_AGAINST_FAIL;
    /// A completion and a release.
    CompleteAgainstRelease, "complete-against-release", QUICK, 2, settling, complete_against_release, COMPLETE_AGAINST_RELEASE;
    /// Two re-drives.
    RedriveTwice, "redrive-twice", QUICK, 2, twice, redrive_twice, REDRIVE_TWICE;
    /// Two workers' polls for one task.
    TwoPolls, "two-polls", WAITING, 2, twice, two_polls, TWO_POLLS;
    /// Two cancellations.
    CancelTwice, "cancel-twice", QUICK, 2, twice, cancel_twice, CANCEL_TWICE;
}

impl Kind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<Kind> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The longest delay of a contender behind the barrier.
    pub const fn jitter(self) -> Duration {
        Duration::from_micros(2_500)
    }
}
