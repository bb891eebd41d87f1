//! That every task comes to rest.
//!
//! The checker's own `eventually` does not look at cycles and forgets at joins, so the whole graph is walked here. Two
//! facts are checked: no run goes on for ever (the graph has no cycle), and wherever a task is unfinished something
//! fair can happen (see [`Protocol::is_fair`]), so that no run stops there. Together: whatever workers, clients, the
//! broker and crashes do, a world in which the clock, the scheduler and the reaper go on comes to rest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use stateright::Model;

use crate::protocol::{Action, Protocol, World};

/// What a walk over the whole graph found.
#[derive(Debug)]
pub enum Liveness {
    /// Every run comes to rest; so many worlds were seen.
    Rests(usize),
    /// Nothing fair can happen in this world, and a task is unfinished; how it is reached.
    Stuck(Vec<(Option<Action>, World)>),
    /// Runs through this world can come back to it; how it is reached.
    Endless(Vec<(Option<Action>, World)>),
}

/// Walks every run of the protocol.
pub fn walk(protocol: &Protocol) -> Liveness {
    let mut graph = Graph::default();
    for world in protocol.init_states() {
        graph.number(world, None);
    }
    let mut actions = Vec::new();
    let mut number = 0;
    while let Some(world) = graph.worlds.get(number).cloned() {
        let mut goes_on = world.is_at_rest();
        protocol.actions(&world, &mut actions);
        for action in actions.drain(..) {
            if let Some(next) = protocol.next_state(&world, action) {
                goes_on |= protocol.is_fair(&world, &action);
                graph.link(number, action, next);
            }
        }
        if !goes_on {
            return Liveness::Stuck(graph.way_to(number));
        }
        number += 1;
    }
    match graph.on_a_cycle() {
        Some(number) => Liveness::Endless(graph.way_to(number)),
        None => Liveness::Rests(graph.worlds.len()),
    }
}

/// The worlds in the order in which they were found.
#[derive(Default)]
struct Graph {
    worlds: Vec<World>,
    numbers: HashMap<World, usize>,
    /// From which world, by what, each was found first.
    found: Vec<Option<(usize, Action)>>,
    links: Vec<(usize, usize)>,
    entries: Vec<usize>,
}

impl Graph {
    fn number(&mut self, world: World, found: Option<(usize, Action)>) -> usize {
        match self.numbers.entry(world) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.worlds.push(new.key().clone());
                self.found.push(found);
                self.entries.push(0);
                *new.insert(self.worlds.len() - 1)
            }
        }
    }

    fn link(&mut self, from: usize, action: Action, to: World) {
        let to = self.number(to, Some((from, action)));
        self.entries[to] += 1;
        self.links.push((from, to));
    }

    /// A world on a cycle or behind one: what is left after everything without a predecessor was taken away, again
    /// and again. Links are in the order of their beginnings.
    fn on_a_cycle(&self) -> Option<usize> {
        let mut entries = self.entries.clone();
        let mut free: Vec<usize> = (0..entries.len()).filter(|&number| entries[number] == 0).collect();
        let mut taken = 0;
        while let Some(number) = free.pop() {
            taken += 1;
            let begin = self.links.partition_point(|link| link.0 < number);
            for &(_, to) in self.links[begin..].iter().take_while(|link| link.0 == number) {
                entries[to] -= 1;
                if entries[to] == 0 {
                    free.push(to);
                }
            }
        }
        if taken == entries.len() { None } else { entries.iter().position(|&left| left > 0) }
    }

    fn way_to(&self, number: usize) -> Vec<(Option<Action>, World)> {
        let mut way = Vec::new();
        let mut at = Some(number);
        while let Some(number) = at {
            let found = self.found[number];
            way.push((found.map(|(_, action)| action), self.worlds[number].clone()));
            at = found.map(|(from, _)| from);
        }
        way.reverse();
        way
    }
}
