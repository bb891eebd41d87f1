//! Liveness: every task finishes.
//!
//! The checker's own `eventually` misses cycles and joins, so this walks the whole graph. It checks
//! two facts. No run goes on forever: the graph has no cycle. And while a task is unfinished, a
//! fair action is possible (see [`Protocol::is_fair`]), so no run stops there. Together: whatever
//! workers, clients, the broker and crashes do, all tasks finish if time passes, tasks are claimed
//! and the reaper runs.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use crate::check::Trace;
use crate::protocol::Protocol;
use crate::world::{Action, World};

/// The result of a walk over the whole graph.
#[derive(Debug)]
pub enum Liveness {
    /// Every run finishes; the number of worlds.
    Finishes(usize),
    /// No fair action is possible, and a task is unfinished; the shortest trace to it.
    Stuck(Trace),
    /// A run can go on forever: the shortest trace to a world on a cycle or behind one.
    Endless(Trace),
}

/// Walks every run of the protocol, breadth first.
pub fn walk(protocol: &Protocol) -> Liveness {
    let mut graph = StateGraph::default();
    for world in protocol.init_states() {
        graph.number(world, None);
    }
    let mut actions = Vec::new();
    while let Some((number, world)) = graph.open.pop_front() {
        // A world with a broken law has no successors; the checker reports it.
        let mut goes_on = world.is_finished() || !world.broken.is_empty();
        protocol.actions(&world, &mut actions);
        for action in actions.drain(..) {
            if let Some(next) = protocol.next_state(&world, action) {
                goes_on |= protocol.is_fair(&world, &action);
                let to = graph.number(next, Some((number, action)));
                graph.links.push((number, to));
            }
        }
        if !goes_on {
            return Liveness::Stuck(graph.trace_to(protocol, number));
        }
    }
    match graph.on_a_cycle() {
        Some(number) => Liveness::Endless(graph.trace_to(protocol, number)),
        None => Liveness::Finishes(graph.found.len()),
    }
}

/// The worlds, numbered in the order in which they were found. As in the checker, the hash of a
/// world identifies it.
#[derive(Default)]
struct StateGraph {
    numbers: HashMap<u64, usize>,
    /// The world and the action from which each was found first.
    found: Vec<Option<(usize, Action)>>,
    /// Steps from world to world, in the order of their first world.
    links: Vec<(usize, usize)>,
    open: VecDeque<(usize, World)>,
}

impl StateGraph {
    fn number(&mut self, world: World, found: Option<(usize, Action)>) -> usize {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        match self.numbers.entry(hasher.finish()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let number = self.found.len();
                self.found.push(found);
                self.open.push_back((number, world));
                *new.insert(number)
            }
        }
    }

    /// A world that is left after removing worlds without a predecessor until every one has one.
    fn on_a_cycle(&self) -> Option<usize> {
        let mut entries = vec![0_usize; self.found.len()];
        for (_, to) in &self.links {
            entries[*to] += 1;
        }
        let mut free: Vec<usize> = (0..entries.len()).filter(|&number| entries[number] == 0).collect();
        while let Some(number) = free.pop() {
            let begin = self.links.partition_point(|link| link.0 < number);
            for &(_, to) in self.links[begin..].iter().take_while(|link| link.0 == number) {
                entries[to] -= 1;
                if entries[to] == 0 {
                    free.push(to);
                }
            }
        }
        entries.iter().position(|&left| left > 0)
    }

    fn trace_to(&self, protocol: &Protocol, number: usize) -> Trace {
        let mut actions = Vec::new();
        let mut at = number;
        while let Some((from, action)) = self.found[at] {
            actions.push(action);
            at = from;
        }
        actions.reverse();
        let mut world = protocol.init_states().swap_remove(at);
        let mut trace = vec![(None, world.clone())];
        for action in actions {
            world = protocol.next_state(&world, action).expect("invariant: it was found by this action");
            trace.push((Some(action), world.clone()));
        }
        trace
    }
}
