//! Why occurrences have their outcomes: one table of words and sentences.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal: $sentence:literal,)+) => {
        /// Why an occurrence has its outcome.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum OccurrenceReason {
            $($(#[$doc])* $name,)+
        }

        impl OccurrenceReason {
            /// Every reason.
            pub const ALL: &'static [OccurrenceReason] = &[$(OccurrenceReason::$name,)+];

            /// The word in the store and on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(OccurrenceReason::$name => $word,)+
                }
            }

            /// A sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(OccurrenceReason::$name => $sentence,)+
                }
            }

            /// The reason with this word.
            pub fn from_name(name: &str) -> Option<OccurrenceReason> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
            }
        }
    };
}

reasons! {
    /// Fired: its time came.
    OnTime = "on_time": "Its time came.",
    /// Fired: its time had passed, and catch-up made up for it.
    CaughtUp = "caught_up": "No leader was there at its time, and catchup made up for it.",
    /// Fired: the task it waited for finished.
    PreviousEnded = "previous_ended": "The task it waited for finished.",
    /// Fired: it waited, and overlaps are allowed now.
    OverlapAllowed = "overlap_allowed": "It waited for a task that is still live, and overlap_policy is allow_all now.",
    /// Fired: a client triggered it.
    Triggered = "triggered": "A client asked for a run now.",
    /// Fired or buffered: a client asked for the instants of a past time.
    Backfilled = "backfilled": "A client asked for the instants of a past time.",
    /// Buffered: the previous task is live.
    WaitsForPrevious = "waits_for_previous": "A task of this schedule is still live; it runs after that.",
    /// Buffered: the previous task was asked to stop.
    WaitsForStop = "waits_for_stop": "The live task of this schedule was asked to stop; it runs after that.",
    /// Skipped: the previous task was still live.
    PreviousLive = "previous_live": "A task of this schedule was still live, and overlap_policy is skip.",
    /// Skipped: another one waits already.
    OneWaits = "one_waits": "Another one waited already, and overlap_policy is buffer_one.",
    /// Skipped: the buffer is full.
    BufferFull = "buffer_full": "As many waited already as may wait.",
    /// Skipped: a later one took its place.
    Superseded = "superseded": "A later one took its place.",
    /// Skipped: the schedule was paused.
    Paused = "paused": "The schedule was paused.",
    /// Skipped: the limit of runs was reached while it waited.
    RunsUsedUp = "runs_used_up": "max_runs was reached while it waited.",
    /// Skipped: a client withdrew the backfill that it was part of.
    Withdrawn = "withdrawn": "A client withdrew the backfill before it ran.",
    /// Missed: late, and there is no catching up.
    NoCatchUp = "no_catch_up": "No leader was there at its time, and catchup is none.",
    /// Missed: further back than catching up goes.
    OutsideWindow = "outside_window": "No leader was there at its time, and it was over before catchup_window_seconds.",
    /// Coalesced: of the due instants only the last went through.
    LeftToLast = "left_to_last": "No leader was there at its time. Of the instants that were due only the last counts; see its record.",
}
