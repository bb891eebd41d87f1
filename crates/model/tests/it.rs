//! The lease protocol keeps its laws, every task finishes, and planted bugs are found.

use std::collections::BTreeSet;
use std::time::Instant;

use punctual_model::{
    Action, Bug, Finding, Law, Liveness, ModelBounds, Protocol, Route, Trace, check, describe, shortest_trace, walk,
};
use stateright::Model;

/// Every law holds in every world, and every event that must occur does.
#[test]
fn the_protocol_keeps_its_laws() {
    for (name, bounds) in ModelBounds::all() {
        let begun = Instant::now();
        let report = check(&Protocol::correct(bounds));
        let (worlds, steps, depth) = (report.worlds, report.steps, report.depth);
        println!("{name}: {worlds} worlds, {steps} steps, {depth} deep, {:.1?}", begun.elapsed());
        if let Some((law, trace)) = report.broken.first() {
            panic!("{name}: the law is broken: {}\n{}", law.sentence(), describe(trace));
        }
        assert!(report.unseen.is_empty(), "{name}: never seen: {:?}", report.unseen);
    }
}

/// No run goes on forever, and none stops before every task has finished.
#[test]
fn every_task_finishes() {
    for (name, bounds) in ModelBounds::all() {
        let begun = Instant::now();
        match walk(&Protocol::correct(bounds)) {
            Liveness::Finishes(worlds) => println!("{name}: {worlds} worlds, {:.1?}", begun.elapsed()),
            Liveness::Stuck(trace) => panic!("{name}: stuck:\n{}", describe(&trace)),
            Liveness::Endless(trace) => panic!("{name}: a run goes on forever:\n{}", describe(&trace)),
        }
    }
}

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        let protocol = Protocol::with(bug);
        let trace = match bug.finding() {
            Finding::Broken(law) => shortest_trace(&protocol, law),
            Finding::Stuck => match walk(&protocol) {
                Liveness::Stuck(trace) => Some(trace),
                Liveness::Endless(_) | Liveness::Finishes(_) => None,
            },
        };
        let trace = trace.unwrap_or_else(|| panic!("{bug:?} is not found by {:?}", bug.finding()));
        println!("{bug:?}: {:?} after {} steps\n{}", bug.finding(), trace.len() - 1, describe(&trace));
    }
}

/// A law that no bug breaks may be impossible to break.
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

/// A heartbeat after the end of the lease is refused, and the worker knows.
#[test]
fn a_late_heartbeat_revives_nothing() {
    let bug = Protocol::with(Bug::ExtendRevives);
    let trace = shortest_trace(&bug, Law::WithinDeadline).expect("the bug revives");
    let refused = first_refused(&Protocol::correct(bug.bounds), &trace);
    assert!(
        matches!(refused, Some(Action::Beat { detach: false, .. })),
        "{refused:?} is refused in\n{}",
        describe(&trace)
    );
}

/// A run is detached from its node after the reaper, on another node, has declared that node dead
/// and read the task. A detachment changes no version, but the reaper's write compares the hold
/// too, and is lost.
#[test]
fn a_reaper_with_an_old_view_keeps_a_detached_run() {
    let beats = beats_that_save(Route::Push);
    assert!(matches!(beats[..], [Action::Beat { detach: true, .. }]), "{beats:?}");
}

/// The same applies to a lease that was extended after the reaper had read its old end.
#[test]
fn a_reaper_with_an_old_view_keeps_an_extended_lease() {
    let beats = beats_that_save(Route::Pull);
    assert!(matches!(beats[..], [Action::Beat { detach: false, .. }]), "{beats:?}");
}

/// The heartbeats of the trace in which a reaper with a stale hold ends a run that was promised its
/// task. The correct protocol takes the same steps, and there the reaper's write is lost.
fn beats_that_save(route: Route) -> Vec<Action> {
    let bounds = ModelBounds::life(route);
    let bug = Protocol { bounds: bounds.clone(), bug: Some(Bug::ReaperJudgesStaleHold) };
    let trace = shortest_trace(&bug, Law::LeaseKept).expect("the reaper takes the task back");
    println!("{}", describe(&trace));
    let correct = Protocol::correct(bounds);
    assert_eq!(first_refused(&correct, &trace), None, "{}", describe(&trace));
    let [.., (_, before), (Some(reap), _)] = &trace[..] else { panic!("a trace of one step") };
    let after = correct.next_state(before, *reap).expect("the reaper writes");
    assert_eq!((&after.rows, after.reaper), (&before.rows, None), "lost");
    trace.iter().filter_map(|(action, _)| *action).filter(|action| matches!(action, Action::Beat { .. })).collect()
}

/// The first step of the trace that the protocol does not take.
fn first_refused(protocol: &Protocol, trace: &Trace) -> Option<Action> {
    trace.windows(2).find_map(|steps| {
        let (world, action) = (&steps[0].1, steps[1].0?);
        protocol.next_state(world, action).is_none().then_some(action)
    })
}
