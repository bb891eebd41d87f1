//! Runs the checker, and tells what it found in words.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use stateright::{Checker, HasDiscoveries, Model};

use crate::law::Law;
use crate::protocol::{Action, Protocol, World};

/// What a run of the checker found.
#[derive(Debug)]
pub struct Report {
    /// Different worlds.
    pub worlds: usize,
    /// Steps from world to world, those to known worlds included.
    pub steps: usize,
    /// The most steps from the start to a world.
    pub depth: usize,
    /// The laws that were broken, each with the shortest way there that was met.
    pub broken: Vec<(Law, Vec<(Option<Action>, World)>)>,
    /// What should have been seen somewhere, and was not.
    pub unseen: Vec<&'static str>,
}

/// Explores everything, or until `until` is broken.
pub fn check(protocol: Protocol, until: Option<Law>, threads: usize) -> Report {
    let finish = match until {
        Some(law) => HasDiscoveries::AnyOf(BTreeSet::from([law.sentence()])),
        None => HasDiscoveries::AnyFailures,
    };
    let checker = protocol.checker().threads(threads).finish_when(finish).spawn_bfs().join();
    let mut found = checker.discoveries();
    let broken = Law::ALL.into_iter().filter_map(|law| Some((law, way(found.remove(law.sentence())?.into_vec())))).collect();
    let wanted = checker.model().properties().into_iter().filter(|property| !property.expectation.discovery_is_failure());
    Report {
        worlds: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        broken,
        unseen: wanted.map(|property| property.name).filter(|name| !found.contains_key(name)).collect(),
    }
}

/// The checker names the action that leaves a world; people want the one that led there.
fn way(path: Vec<(World, Option<Action>)>) -> Vec<(Option<Action>, World)> {
    let mut before = None;
    path.into_iter().map(|(world, next)| (std::mem::replace(&mut before, next), world)).collect()
}

/// A way through the worlds, a line a step: what happened, and the tasks after it.
pub fn tell(way: &[(Option<Action>, World)]) -> String {
    let mut text = String::new();
    for (number, (action, world)) in way.iter().enumerate() {
        let action = action.map_or_else(|| "submitted".to_owned(), |action| format!("{action:?}"));
        let rows: Vec<String> = world.rows.iter().map(ToString::to_string).collect();
        writeln!(text, "{number:>3}. {action}\n       {}", rows.join(" | ")).expect("invariant: a string takes all");
    }
    text
}
