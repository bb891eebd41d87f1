//! Races: every outcome is legal, none is missing, and planted bugs are found.

use std::path::PathBuf;

use punctual_trials::planted::{Bug, Trial};
use punctual_trials::races::{Kind, RacePlan, Report, run};

/// Rounds of each kind.
const ROUNDS: usize = 80;
/// Rounds of a hundred connections each: three thousand calls.
const CROWDED: usize = 30;
/// A planted bug must show within this fraction of the rounds.
const FEW: usize = 2;

async fn tried(kind: Kind, bug: Option<Bug>, rounds: usize) -> Report {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_punctual-planted"));
    let histories = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let seed = rand::random_range(0..1_000_000);
    println!("seed {seed}");
    let report = run(&RacePlan { program, bug, rounds, seed, histories }, kind, |_| {}).await;
    println!("{report}");
    report
}

fn rounds(kind: Kind) -> usize {
    if kind.seats() >= 100 { CROWDED } else { ROUNDS }
}

async fn is_a_fair_race(kind: Kind) {
    let report = tried(kind, None, rounds(kind)).await;
    assert!(report.is_clean());
    // A race in which one side always wins proves nothing.
    assert!(report.missing().is_empty());
}

macro_rules! fair {
    ($($test:ident: $kind:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                is_a_fair_race(Kind::$kind).await;
            }
        )+

        #[test]
        fn every_kind_has_a_test() {
            assert_eq!([$(Kind::$kind),+], Kind::ALL);
        }
    };
}

fair! {
    a_late_completion_has_no_effect: LateCompletion,
    a_heartbeat_after_a_flood_has_no_effect: LateFlood,
    a_heartbeat_never_revives_a_lease: LateHeartbeat,
    a_completion_at_expiry_is_accepted_or_refused: CompletionAtExpiry,
    a_cancelled_task_is_not_leased: CancelAgainstLease,
    a_cancelled_task_is_not_pushed: CancelAgainstWebhook,
    a_task_runs_at_its_old_time_or_at_its_new_one: RescheduleAgainstClaim,
    a_payload_is_the_old_one_or_the_new_one: EditAgainstClaim,
    an_edit_for_a_version_is_made_at_that_version: ConditionalEditAgainstClaim,
    one_of_two_edits_for_a_version_is_made: ConditionalEdits,
    a_key_from_a_hundred_connections_makes_one_task: SameKey,
    a_key_with_two_bodies_makes_one_task_of_one_of_them: SameKeyTwoBodies,
    the_same_completion_again_changes_nothing: SameCompletion,
    one_of_two_results_is_kept: DifferentCompletions,
    a_task_completes_or_is_cancelled: CompleteAgainstCancel,
    a_worker_is_asked_to_stop_at_its_next_heartbeat: CancelAgainstHeartbeats,
    a_run_completes_or_fails: CompleteAgainstFail,
    a_run_completes_or_is_given_back: CompleteAgainstRelease,
    one_of_two_redrives_is_made: RedriveTwice,
    one_of_two_workers_gets_the_task: TwoPolls,
    a_second_cancellation_changes_nothing: CancelTwice,
}

/// Both the table of the race and the law of the checker find the bug.
async fn is_noticed(bug: Bug) {
    let Trial::Races(kind) = bug.shows_in() else { panic!("{} shows in another trial", bug.name()) };
    let report = tried(kind, Some(bug), rounds(kind) / FEW).await;
    assert!(!report.illegal.is_empty(), "no outcome was illegal with {}", bug.name());
    assert!(report.broke(bug.breaks()), "{:?} was not broken by {}", bug.breaks(), bug.name());
}

macro_rules! noticed {
    ($($test:ident: $bug:ident),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                is_noticed(Bug::$bug).await;
            }
        )+

        #[test]
        fn every_bug_of_a_race_has_a_test() {
            let bugs = Bug::ALL.iter().copied().filter(|bug| matches!(bug.shows_in(), Trial::Races(_)));
            assert_eq!(bugs.collect::<Vec<_>>(), [$(Bug::$bug),+]);
        }
    };
}

noticed! {
    a_lost_completion_that_is_accepted_is_noticed: LostCompletionTaken,
    a_lost_cancellation_that_is_accepted_is_noticed: LostCancelTaken,
    a_lost_edit_that_is_accepted_is_noticed: LostEditTaken,
    a_lost_redrive_that_is_accepted_is_noticed: LostRedriveTaken,
    a_claim_of_a_cancelled_task_is_noticed: CancelledHandedOut,
    a_revived_lease_is_noticed: LeaseRevived,
    a_key_without_a_lock_is_noticed: KeyUnlocked,
    a_stale_payload_is_noticed: StaleBody,
}

/// The races also find a bug that shows without a race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_not_compared_is_noticed_by_a_race() {
    let report = tried(Kind::LateCompletion, Some(Bug::TokenIgnored), ROUNDS / FEW).await;
    assert!(!report.illegal.is_empty() && report.broke(Bug::TokenIgnored.breaks()));
}
