//! That every task comes to rest.
//!
//! The checker's own `eventually` does not look at cycles and forgets at joins, so the whole graph
//! is walked here. Two facts are checked: no run goes on forever (the graph has no cycle), and
//! wherever a task is unfinished something fair can happen (see [`Protocol::is_fair`]), so that no
//! run stops there. Together: whatever workers, clients, the broker and crashes do, a world in
//! which time passes, tasks are taken and the reaper looks comes to rest.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use crate::check::Trace;
use crate::protocol::Protocol;
use crate::world::{Action, World};

/// What a walk over the whole graph found.
#[derive(Debug)]
pub enum Liveness {
    /// Every run comes to rest; so many worlds were seen.
    Rests(usize),
    /// Nothing fair can happen any more, and a task is unfinished; the shortest trace to it.
    Stuck(Trace),
    /// A run can go on for ever: the shortest trace to a world on a cycle or behind one.
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
        // A world in which a law is broken ends there, and is the checker's to tell of.
        let mut goes_on = world.is_at_rest() || !world.broken.is_empty();
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
        None => Liveness::Rests(graph.found.len()),
    }
}

/// The worlds, numbered in the order in which they were found. As in the checker, a world is known
/// by its hash.
#[derive(Default)]
struct StateGraph {
    numbers: HashMap<u64, usize>,
    /// From which world, by what, each was found first.
    found: Vec<Option<(usize, Action)>>,
    /// In the order of their beginnings.
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

    /// What is left, if anything, after everything without a predecessor was taken away, again and
    /// again.
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
