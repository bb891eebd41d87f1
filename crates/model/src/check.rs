//! Runs the checker, and describes what it found.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use stateright::{Checker, HasDiscoveries, Model};

use crate::law::Law;
use crate::protocol::Protocol;
use crate::world::{Action, World};

/// A run: each world with the action that led to it.
pub type Trace = Vec<(Option<Action>, World)>;

/// The result of a run of the checker.
#[derive(Debug)]
pub struct Report {
    /// The number of different worlds.
    pub worlds: usize,
    /// The number of steps from world to world, including steps to known worlds.
    pub steps: usize,
    /// The maximum number of steps from the start to a world.
    pub depth: usize,
    /// The laws that were broken, each with a trace.
    pub broken: Vec<(Law, Trace)>,
    /// The events that must occur and did not.
    pub unseen: Vec<&'static str>,
}

/// Explores all worlds, or stops when a law is broken.
pub fn check(protocol: &Protocol) -> Report {
    explore(protocol, HasDiscoveries::AnyFailures, None)
}

/// The shortest trace that breaks this law, if there is one.
pub fn shortest_trace(protocol: &Protocol, law: Law) -> Option<Trace> {
    let mut shortest: Option<Trace> = None;
    // The checker keeps the last of several traces of similar length, so this asks again for a
    // shorter one.
    loop {
        let until = HasDiscoveries::AnyOf(BTreeSet::from([law.sentence()]));
        let shorter = explore(protocol, until, shortest.as_ref().map(Vec::len));
        let found = shorter.broken.into_iter().find(|(broken, _)| *broken == law);
        match found {
            Some((_, trace)) => shortest = Some(trace),
            None => return shortest,
        }
    }
}

/// A trace must have fewer than `within` worlds.
fn explore(protocol: &Protocol, until: HasDiscoveries, within: Option<usize>) -> Report {
    let builder = protocol.clone().checker().threads(2).finish_when(until);
    let builder = if let Some(worlds) = within { builder.target_max_depth(worlds) } else { builder };
    let checker = builder.spawn_bfs().join();
    let mut found = checker.discoveries();
    let trace_to = |law: Law| Some((law, trace(found.remove(law.sentence())?.into_vec())));
    let broken = Law::ALL.into_iter().filter_map(trace_to).collect();
    let sights = protocol.properties().into_iter().filter(|property| !property.expectation.discovery_is_failure());
    Report {
        worlds: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        broken,
        unseen: sights.map(|sight| sight.name).filter(|name| !found.contains_key(name)).collect(),
    }
}

/// Pairs each world with the action that led to it. The checker pairs it with the action that
/// leaves it.
fn trace(path: Vec<(World, Option<Action>)>) -> Trace {
    let mut before = None;
    path.into_iter().map(|(world, next)| (std::mem::replace(&mut before, next), world)).collect()
}

/// A trace, two lines a step: what happened, and the tasks after it.
pub fn describe(trace: &Trace) -> String {
    let mut text = String::new();
    for (number, (action, world)) in trace.iter().enumerate() {
        let action = action.map_or_else(|| "submitted".to_owned(), |action| action.to_string());
        let rows: Vec<String> = world.rows.iter().map(ToString::to_string).collect();
        writeln!(text, "{number:>3}. {action}\n       {}", rows.join(" | "))
            .expect("invariant: writing to a string succeeds");
    }
    text
}
