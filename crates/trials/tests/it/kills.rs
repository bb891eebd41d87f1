//! `kill -9`: the product keeps its promises, and the product with a planted bug does not.

use std::path::PathBuf;
use std::time::Duration;

use punctual_trials::kill::{self, KillPlan, Report};
use punctual_trials::planted::{Bug, Trial};
use punctual_trials::workload::WorkloadSize;

fn plan(seed: u64) -> KillPlan {
    KillPlan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_punctual-planted")),
        bug: None,
        cycles: 5,
        seed,
        load: WorkloadSize::USUAL,
        drain: Duration::from_mins(1),
        histories: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    }
}

async fn tried(plan: &KillPlan) -> Report {
    println!("seed {}", plan.seed);
    let report = kill::run(plan, |_| {}).await;
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_often_keeps_its_promises() {
    let report = tried(&plan(rand::random_range(0..1_000_000))).await;
    assert!(report.is_clean());
    // A trial in which nothing happens proves nothing.
    assert!(report.kills >= 5 && report.acknowledged > 100 && report.completed > 50 && report.unanswered > 0);
    assert!(report.ordered > 10 && report.dependent > 3 && report.limited > 10 && report.scheduled > 2);
}

/// A trial just large enough for a planted bug to show.
fn small(bug: Option<Bug>, kills: usize) -> KillPlan {
    let plan = KillPlan { bug, cycles: kills, load: WorkloadSize::LIGHT, ..plan(1) };
    // With a bug a task may never finish. Wait no longer than a task usually needs.
    if bug.is_some() { KillPlan { drain: Duration::from_secs(6), ..plan } } else { plan }
}

async fn is_noticed(bug: Bug) {
    let Trial::Kills(kills) = bug.shows_in() else { panic!("{} shows in another trial", bug.name()) };
    let report = tried(&small(Some(bug), kills)).await;
    assert!(report.broke(bug.breaks()), "{:?} was not broken by {}", bug.breaks(), bug.name());
    assert_eq!(report.integrity, "ok");
}

/// Violations come from the bug, and not from the small size of the trial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_bug_no_law_is_broken() {
    assert!(tried(&small(None, 1)).await.is_clean());
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
        fn every_bug_has_a_test() {
            let bugs = Bug::ALL.iter().copied().filter(|bug| matches!(bug.shows_in(), Trial::Kills(_)));
            assert_eq!(bugs.collect::<Vec<_>>(), [$(Bug::$bug),+]);
        }
    };
}

noticed! {
    a_submission_acknowledged_before_it_is_written_is_noticed: AckBeforeCommit,
    a_key_that_is_ignored_is_noticed: KeyIgnored,
    a_due_instant_rounded_down_is_noticed: DueRoundedDown,
    an_expiry_that_is_forgotten_is_noticed: ExpiryForgotten,
    an_ordering_key_that_is_forgotten_is_noticed: OrderForgotten,
    a_dependency_that_is_forgotten_is_noticed: ParentForgotten,
    a_limit_that_is_evaded_is_noticed: LimitEvaded,
    a_token_that_is_not_compared_is_noticed: TokenIgnored,
    a_heartbeat_token_that_is_not_compared_is_noticed: HeartbeatTokenIgnored,
    a_completion_that_is_not_written_is_noticed: CompletionUnwritten,
    a_cancellation_that_is_not_written_is_noticed: CancelUnwritten,
    a_request_to_stop_that_is_not_written_is_noticed: StopUnwritten,
    a_reschedule_that_is_ignored_is_noticed: RescheduleIgnored,
    an_attempt_counted_twice_is_noticed: AttemptCountedTwice,
    a_retry_without_its_delay_is_noticed: RetryAtOnce,
    a_redrive_that_keeps_the_attempts_is_noticed: RedriveKeepsAttempts,
    a_task_handed_out_twice_is_noticed: HandedOutTwice,
    a_lease_cut_short_is_noticed: LeaseCutShort,
    an_instant_that_fires_twice_is_noticed: FiredTwice,
    a_sweep_that_is_off_is_noticed: SweepOff,
    a_reaper_that_is_blind_is_noticed: ReaperBlind,
}
