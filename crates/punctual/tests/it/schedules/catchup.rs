//! Catching up after a restart: the outcomes of the instants of the outage.

use jiff::SignedDuration;
use punctual_testkit::clock::WallClock;
use serde_json::{Value, json};

use super::{create, every_second, expect_every_second, occurrences, outcomes, read, until_outcomes};
use crate::it::world::{Caller, World, merged};

/// How long the server is down.
pub const OUTAGE: SignedDuration = SignedDuration::from_secs(5);

fn of<'a>(all: &'a [Value], outcome: &str) -> Vec<&'a Value> {
    all.iter().filter(|one| one["outcome"] == outcome).collect()
}

/// The occurrences that were decided in the same pass as the first with this outcome.
fn together_with<'a>(all: &'a [Value], outcome: &str) -> Vec<&'a Value> {
    let decided = &of(all, outcome)[0]["decided_at"];
    all.iter().filter(|one| one["decided_at"] == *decided).collect()
}

/// A schedule of every second for each catch-up policy, with the checks of what it promises.
pub struct Promises {
    none: Value,
    last: Value,
    all: Value,
    window: Value,
    /// Leaves missed instants to the last one, which cannot run because a task is live.
    busy: Value,
}

impl Promises {
    /// Creates the schedules, and returns once each has fired.
    pub async fn start(caller: &Caller) -> Self {
        let make = async |name: &str, more: Value| {
            let more = merged(json!({"overlap_policy": "allow_all"}), more);
            create(caller, &every_second(name, more)).await
        };
        let promises = Self {
            none: make("none", json!({"catchup": "none"})).await,
            last: make("last", json!({"catchup": "last"})).await,
            all: make("all", json!({"catchup": "all"})).await,
            window: make("window", json!({"catchup": "all", "catchup_window_seconds": 2})).await,
            busy: make("busy", json!({"overlap_policy": "skip"})).await,
        };
        for schedule in promises.each() {
            until_outcomes(caller, schedule, "fired", 1).await;
        }
        promises
    }

    fn each(&self) -> [&Value; 5] {
        [&self.none, &self.last, &self.all, &self.window, &self.busy]
    }

    /// Waits until a server runs again after [`OUTAGE`], and checks the outcomes.
    pub async fn expect_kept(&self, caller: &Caller) {
        let records = until_outcomes(caller, &self.none, "missed", 3).await;
        assert!(of(&records, "missed").iter().all(|one| one["reason"] == "no_catch_up"), "{records:#?}");
        let records = until_outcomes(caller, &self.last, "coalesced", 3).await;
        let together = together_with(&records, "coalesced");
        assert_eq!(together.iter().filter(|one| one["outcome"] == "fired").count(), 1, "{records:#?}");
        assert_eq!(together.last().expect("some")["outcome"], "fired", "the last one runs for all: {records:#?}");
        // The coalesced instants do not claim that the last one ran: its predecessor was live.
        let records = until_outcomes(caller, &self.busy, "coalesced", 3).await;
        assert_eq!(of(&records, "fired").len(), 1, "{records:#?}");
        let left = of(&records, "coalesced");
        assert!(left.iter().all(|one| one["reason"] == "left_to_last"), "{records:#?}");
        assert!(left.iter().all(|one| !one["message"].as_str().unwrap_or_default().contains("runs")), "{records:#?}");
        let last_of_them = *together_with(&records, "coalesced").last().expect("some");
        assert_eq!((&last_of_them["outcome"], &last_of_them["reason"]), (&json!("skipped"), &json!("previous_live")));
        let records = until_outcomes(caller, &self.window, "missed", 2).await;
        assert!(of(&records, "missed").iter().all(|one| one["reason"] == "outside_window"), "{records:#?}");
        // An instant is late after more than a second, so one of the two seconds of the window is
        // left.
        let together = together_with(&records, "missed");
        assert_eq!(together.iter().filter(|one| one["reason"] == "caught_up").count(), 1, "{records:#?}");

        for schedule in [&self.none, &self.last, &self.all, &self.window] {
            let before = occurrences(caller, schedule).await;
            let fired = of(&before, "fired").len();
            // The schedule continues to fire, and no instant is without a record.
            let records = until_outcomes(caller, schedule, "fired", fired + 1).await;
            expect_every_second(&records);
            assert!(records.iter().all(|one| (one["outcome"] == "fired") == one["task_id"].is_string()));
            let now = read(caller, schedule).await;
            assert!(now["run_count"].as_u64() >= Some(2), "{now:#}");
        }
        assert!(outcomes(&occurrences(caller, &self.all).await).iter().all(|one| *one == "fired"), "nothing is missed");
        assert!(read(caller, &self.none).await["missed_count"].as_u64() >= Some(3));
    }
}

#[tokio::test]
async fn a_restart_catches_up_as_each_schedule_says() {
    // No test waits for this: the clock advances while the server is down.
    let clock = WallClock::right();
    let mut world = World::start_with(|serve| serve.under(clock.starter())).await;
    let promises = Promises::start(&world.caller()).await;
    world.server.kill();
    clock.set_ahead(OUTAGE);
    world.restart().await;
    promises.expect_kept(&world.caller()).await;
}
