//! The lease protocol holds, comes to rest, and would be seen not to.

use std::collections::BTreeSet;
use std::time::Instant;

use punctual_model::{
    Action, Bounds, Bug, Finding, Law, Liveness, Protocol, Reliance, Route, check, shortest_way, tell, walk,
};
use stateright::Model;

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

/// The way in which a revived lease is taken from a worker that was told its new end: without the bug the late
/// heartbeat is refused, and the worker knows.
#[test]
fn a_late_heartbeat_revives_nothing() {
    let bug = Protocol::with(Bug::ExtendRevives);
    let way = shortest_way(&bug, Law::LeaseKept).expect("the reaper takes what it has read");
    let correct = Protocol::correct(bug.bounds);
    let refused = way.windows(2).find_map(|steps| {
        let (world, action) = (&steps[0].1, steps[1].0?);
        correct.next_state(world, action).is_none().then_some(action)
    });
    assert!(matches!(refused, Some(Action::Beat { detach: false, .. })), "{refused:?} is refused in\n{}", tell(&way));
}

/// A run can be detached from its node while the reaper, on another node, has taken that node for dead and read the
/// task: a detachment changes no version, so the reaper takes the task back all the same. It needs a cluster, for no
/// node takes itself for dead. The run could rely on its hold if the reaper's write looked at the hold again.
#[test]
fn a_detached_run_can_be_lost_to_a_reaper_that_has_read_it() {
    let with = |reliance| Protocol::correct(Bounds { reliance, ..Bounds::races(Route::Push) });
    let taken = shortest_way(&with(Reliance::Detached), Law::LeaseKept);
    println!("{}", tell(&taken.expect("the reaper takes what it has read")));
    assert!(check(&with(Reliance::DetachedRechecked)).broken.is_empty());
}
