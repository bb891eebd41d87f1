//! The lease protocol holds, comes to rest, and would be seen not to.

use std::collections::BTreeSet;
use std::time::Instant;

use punctual_model::{Bounds, Bug, Finding, Law, Liveness, Protocol, Reliance, Route, check, shortest_way, tell, walk};

/// Every law in every world, and the worlds are not empty.
#[test]
fn the_protocol_holds() {
    for (name, bounds) in Bounds::all() {
        let begun = Instant::now();
        let report = check(&Protocol::correct(bounds));
        let (worlds, steps, depth) = (report.worlds, report.steps, report.depth);
        println!("{name}: {worlds} worlds, {steps} steps, {depth} deep, {:.1?}", begun.elapsed());
        if let Some((law, way)) = report.broken.first() {
            panic!("{name}: it does not hold that {}:\n{}", law.sentence(), tell(way));
        }
        assert!(report.unseen.is_empty(), "{name}: never seen: {:?}", report.unseen);
    }
}

/// Whatever happens, no run goes on for ever and none stops before all is final.
#[test]
fn every_task_comes_to_rest() {
    for (name, bounds) in Bounds::all() {
        let begun = Instant::now();
        match walk(&Protocol::correct(bounds)) {
            Liveness::Rests(worlds) => println!("{name}: {worlds} worlds, {:.1?}", begun.elapsed()),
            Liveness::Stuck(way) => panic!("{name}: stuck:\n{}", tell(&way)),
            Liveness::Endless(way) => panic!("{name}: goes on for ever:\n{}", tell(&way)),
        }
    }
}

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        let protocol = Protocol::with(bug);
        let way = match bug.finding() {
            Finding::Broken(law) => shortest_way(&protocol, law),
            Finding::Stuck => match walk(&protocol) {
                Liveness::Stuck(way) => Some(way),
                Liveness::Endless(_) | Liveness::Rests(_) => None,
            },
        };
        let way = way.unwrap_or_else(|| panic!("{bug:?} is not found by {:?}", bug.finding()));
        println!("{bug:?}: {:?} after {} steps\n{}", bug.finding(), way.len() - 1, tell(&way));
    }
}

/// A law that no bug breaks might be one that cannot be broken.
#[test]
fn every_law_finds_a_bug() {
    let found: BTreeSet<Law> = Bug::ALL
        .into_iter()
        .filter_map(|bug| match bug.finding() {
            Finding::Broken(law) => Some(law),
            Finding::Stuck => None,
        })
        .collect();
    assert_eq!(found, BTreeSet::from(Law::ALL));
}

/// The store extends a hold that has run out, and detaches a run from a node that is taken for dead, as long as nobody
/// has taken the task back. But the reaper may have read it by then, and an extension changes no version: who was late
/// once cannot rely on its lease, whatever it is told afterwards. It could if the reaper's write looked at the hold
/// again.
#[test]
fn a_late_heartbeat_is_no_promise() {
    for route in [Route::Pull, Route::Push] {
        let with = |reliance| Protocol::correct(Bounds { reliance, ..Bounds::races(route) });
        let taken = shortest_way(&with(Reliance::AnyAnswer), Law::LeaseKept);
        println!("{}", tell(&taken.expect("the reaper takes what it has read")));
        assert!(check(&with(Reliance::AnyAnswerRechecked)).broken.is_empty());
    }
}
