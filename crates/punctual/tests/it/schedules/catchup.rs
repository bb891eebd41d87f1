//! What becomes of instants at which nobody was there, after a restart.

use jiff::SignedDuration;
use punctual_testkit::clock::WallClock;
use serde_json::{Value, json};

use super::{create, every_second, occurrences, outcomes, read, until_outcomes};
use crate::it::world::{World, seconds_between, time};

/// How long nobody is there.
const OUTAGE: SignedDuration = SignedDuration::from_secs(5);

fn of<'a>(all: &'a [Value], outcome: &str) -> Vec<&'a Value> {
    all.iter().filter(|one| one["outcome"] == outcome).collect()
}

#[tokio::test]
async fn a_restart_catches_up_as_each_schedule_says() {
    // Nobody waits for it: the clock goes on while the server is away.
    let clock = WallClock::right();
    let mut world = World::start_with(|serve| serve.under(clock.starter())).await;
    let caller = world.caller();
    let mut made = Vec::new();
    for (name, more) in [
        ("none", json!({"catchup": "none"})),
        ("last", json!({"catchup": "last"})),
        ("all", json!({"catchup": "all"})),
        ("window", json!({"catchup": "all", "catchup_window_seconds": 2})),
    ] {
        let more = crate::it::world::merged(more, json!({"overlap_policy": "allow_all"}));
        made.push(create(&caller, &every_second(name, more)).await);
    }
    let [none, last, all, window] = made.try_into().expect("four");
    let busy = create(&caller, &every_second("busy", json!({"overlap_policy": "skip"}))).await;
    until_outcomes(&caller, &busy, "fired", 1).await;
    until_outcomes(&caller, &window, "fired", 1).await;
    world.server.kill();
    clock.set_ahead(OUTAGE);
    world.restart().await;
    let caller = world.caller();

    let told = until_outcomes(&caller, &none, "missed", 3).await;
    assert!(of(&told, "missed").iter().all(|one| one["reason"] == "no_catch_up"), "{told:#?}");
    let told = until_outcomes(&caller, &last, "coalesced", 3).await;
    let decided = of(&told, "coalesced")[0]["decided_at"].clone();
    let together: Vec<&Value> = told.iter().filter(|one| one["decided_at"] == decided).collect();
    assert_eq!(together.iter().filter(|one| one["outcome"] == "fired").count(), 1, "{told:#?}");
    assert_eq!(together.last().expect("some")["outcome"], "fired", "the last one runs for all: {told:#?}");
    // Of what was left to the last it is not said that it ran: the one before it was live.
    let told = until_outcomes(&caller, &busy, "coalesced", 3).await;
    assert_eq!(of(&told, "fired").len(), 1, "{told:#?}");
    let left = of(&told, "coalesced");
    assert!(left.iter().all(|one| one["reason"] == "left_to_last"), "{told:#?}");
    assert!(left.iter().all(|one| !one["message"].as_str().unwrap_or_default().contains("runs")), "{told:#?}");
    let decided = left[0]["decided_at"].clone();
    let last_of_them = told.iter().rfind(|one| one["decided_at"] == decided).expect("some");
    assert_eq!((&last_of_them["outcome"], &last_of_them["reason"]), (&json!("skipped"), &json!("previous_live")));
    let told = until_outcomes(&caller, &window, "missed", 2).await;
    assert!(of(&told, "missed").iter().all(|one| one["reason"] == "outside_window"), "{told:#?}");
    let caught = told.iter().filter(|one| one["reason"] == "caught_up").count();
    assert!((1..=3).contains(&caught), "{told:#?}");

    for schedule in [&none, &last, &all, &window] {
        let before = occurrences(&caller, schedule).await;
        let fired = of(&before, "fired").len();
        // Life goes on, and no instant is without a record.
        let told = until_outcomes(&caller, schedule, "fired", fired + 1).await;
        let instants: Vec<_> = told.iter().map(|one| time(&one["instant"])).collect();
        let steady = instants.windows(2).all(|pair| (seconds_between(pair[0], pair[1]) - 1.0).abs() < 1e-6);
        assert!(steady, "{} has a gap: {instants:?}", schedule["name"]);
        assert!(told.iter().all(|one| (one["outcome"] == "fired") == one["task_id"].is_string()));
        let now = read(&caller, schedule).await;
        assert!(now["run_count"].as_u64() >= Some(2), "{now:#}");
    }
    assert!(outcomes(&occurrences(&caller, &all).await).iter().all(|one| *one == "fired"), "nothing is missed");
    assert!(read(&caller, &none).await["missed_count"].as_u64() >= Some(3));
}
