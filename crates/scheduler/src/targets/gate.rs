//! Which claimed webhooks may be called now, and which wait for a call at their target to end.
//!
//! Claims run ahead of the slots of a target ([`Pace`](super::pace::Pace)), so a worker may have
//! more runs than may be called. The rules for calls are those of the slots at a target, without
//! what is claimed ahead. Invariant: a run waits only while its target has no slot for it.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use super::counts::{SlotHolder, SlotLimits, SlotsInUse};
use crate::fairness::Band;

/// The calls under way, and the runs that wait for their turn.
#[derive(Debug)]
pub(super) struct Gate {
    calls: SlotsInUse,
    waiting: HashMap<String, TargetLine>,
    /// How many runs have waited so far, over all targets.
    arrivals: u64,
}

/// The runs that wait for a target: a line for each tenant and band, since the slots tell those
/// apart and nothing else.
#[derive(Debug, Default)]
struct TargetLine {
    lines: Vec<HolderLine>,
    runs: usize,
}

/// The runs of a tenant and band, first come first. Never empty.
#[derive(Debug)]
struct HolderLine {
    tenant: String,
    band: Band,
    runs: VecDeque<WaitingRun>,
}

/// A run that waits. It may have been dropped since.
#[derive(Debug)]
struct WaitingRun {
    arrival: u64,
    turn: oneshot::Sender<()>,
}

impl HolderLine {
    fn holder<'a>(&'a self, target: &'a str) -> SlotHolder<'a> {
        SlotHolder { tenant: &self.tenant, band: self.band, target }
    }

    fn is_of(&self, holder: SlotHolder<'_>) -> bool {
        self.tenant == holder.tenant && self.band == holder.band
    }
}

impl Gate {
    /// No call is under way.
    pub fn new(limits: &SlotLimits) -> Self {
        Self { calls: SlotsInUse::new(limits), waiting: HashMap::new(), arrivals: 0 }
    }

    /// The targets of the calls under way, and how many there are at each.
    pub fn targets(&self) -> impl Iterator<Item = (&str, usize)> {
        self.calls.targets()
    }

    /// How many calls are under way at a target.
    pub fn calls_at(&self, target: &str) -> usize {
        self.calls.taken_at(target)
    }

    /// How many runs wait for calls at a target to end.
    pub fn waiting_for(&self, target: &str) -> usize {
        self.waiting.get(target).map_or(0, |line| line.runs)
    }

    /// Begins a call, or returns what says when it is the holder's turn. The call has begun then.
    pub fn enter(&mut self, limits: &SlotLimits, holder: SlotHolder<'_>) -> Option<oneshot::Receiver<()>> {
        let has_line = self.waiting.get(holder.target).is_some_and(|line| line.has(holder));
        // Behind its own line there is no slot for it. Others wait for slots that it may have.
        if !has_line && self.calls.is_free_at_target(limits, holder) {
            self.calls.take(holder);
            return None;
        }
        let (turn, its_turn) = oneshot::channel();
        self.arrivals += 1;
        let run = WaitingRun { arrival: self.arrivals, turn };
        self.waiting.entry(holder.target.to_owned()).or_default().add(holder, run);
        Some(its_turn)
    }

    /// Begins a call that does not wait for a slot.
    pub fn enter_at_once(&mut self, holder: SlotHolder<'_>) {
        self.calls.take(holder);
    }

    /// Ends a call. The next one begins in its place.
    pub fn leave(&mut self, limits: &SlotLimits, holder: SlotHolder<'_>) {
        self.calls.give_back(holder);
        self.admit(limits, holder.target);
    }

    /// Begins the call of the first run at a target that may take a slot there.
    fn admit(&mut self, limits: &SlotLimits, target: &str) {
        let Some(line) = self.waiting.get_mut(target) else { return };
        let calls = &mut self.calls;
        while let Some(at) = line.first(|holder| calls.is_free_at_target(limits, holder), target) {
            let run = line.take(at);
            calls.take(line.lines[at].holder(target));
            let has_begun = run.turn.send(()).is_ok();
            if !has_begun {
                calls.give_back(line.lines[at].holder(target));
            }
            if line.lines[at].runs.is_empty() {
                line.lines.swap_remove(at);
            }
            if has_begun {
                break;
            }
        }
        if line.runs == 0 {
            self.waiting.remove(target);
        }
    }
}

impl TargetLine {
    fn has(&self, holder: SlotHolder<'_>) -> bool {
        self.lines.iter().any(|line| line.is_of(holder))
    }

    fn add(&mut self, holder: SlotHolder<'_>, run: WaitingRun) {
        self.runs += 1;
        if let Some(line) = self.lines.iter_mut().find(|line| line.is_of(holder)) {
            return line.runs.push_back(run);
        }
        let (tenant, runs) = (holder.tenant.to_owned(), VecDeque::from([run]));
        self.lines.push(HolderLine { tenant, band: holder.band, runs });
    }

    /// The line whose first run came first, of those that may enter.
    fn first(&self, may_enter: impl Fn(SlotHolder<'_>) -> bool, target: &str) -> Option<usize> {
        let open = self.lines.iter().enumerate().filter(|(_, line)| may_enter(line.holder(target)));
        let first = open.min_by_key(|(_, line)| line.runs.front().map(|run| run.arrival));
        first.map(|(at, _)| at)
    }

    fn take(&mut self, at: usize) -> WaitingRun {
        self.runs -= 1;
        self.lines[at].runs.pop_front().expect("invariant: a line is never empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_target: usize) -> SlotLimits {
        SlotLimits { per_target, in_all: 100, tenant_percent: 100, band_percent: 100, weights: HashMap::new() }
    }

    fn holder<'a>(tenant: &'a str, target: &'a str) -> SlotHolder<'a> {
        SlotHolder { tenant, band: Band::Normal, target }
    }

    fn is_its_turn(turn: &mut oneshot::Receiver<()>) -> bool {
        turn.try_recv().is_ok()
    }

    #[test]
    fn runs_wait_in_order_for_a_call_at_their_target_to_end() {
        let limits = limits(2);
        let mut gate = Gate::new(&limits);
        assert!((0..2).all(|_| gate.enter(&limits, holder("t", "a")).is_none()));
        let mut first = gate.enter(&limits, holder("t", "a")).unwrap();
        let mut second = gate.enter(&limits, holder("t", "a")).unwrap();
        assert!(gate.enter(&limits, holder("t", "b")).is_none(), "another target has slots of its own");
        gate.leave(&limits, holder("t", "b"));
        assert!(!is_its_turn(&mut first));
        gate.leave(&limits, holder("t", "a"));
        assert_eq!([is_its_turn(&mut first), is_its_turn(&mut second)], [true, false]);
        gate.leave(&limits, holder("t", "a"));
        assert!(is_its_turn(&mut second));
    }

    #[test]
    fn tenants_wait_in_the_order_in_which_they_came() {
        let limits = limits(2);
        let mut gate = Gate::new(&limits);
        assert!((0..2).all(|_| gate.enter(&limits, holder("t", "a")).is_none()));
        let mut turns = ["t", "u", "t"].map(|tenant| gate.enter(&limits, holder(tenant, "a")).unwrap());
        for at in 0..3 {
            gate.leave(&limits, holder(["t", "t", "u"][at], "a"));
            assert_eq!(turns.each_mut().map(is_its_turn), [0, 1, 2].map(|turn| turn == at), "one at a time");
        }
        assert_eq!((gate.calls_at("a"), gate.waiting_for("a")), (2, 0));
    }

    #[test]
    fn a_run_that_was_dropped_takes_no_slot() {
        let limits = limits(1);
        let mut gate = Gate::new(&limits);
        assert!(gate.enter(&limits, holder("t", "a")).is_none());
        drop(gate.enter(&limits, holder("t", "a")));
        let mut turn = gate.enter(&limits, holder("t", "a")).unwrap();
        gate.leave(&limits, holder("t", "a"));
        assert!(is_its_turn(&mut turn));
        gate.leave(&limits, holder("t", "a"));
        assert!(gate.enter(&limits, holder("t", "a")).is_none(), "nobody waits any more");
    }

    #[test]
    fn the_reserve_of_a_target_is_not_behind_those_who_wait() {
        let limits = limits(4);
        let mut gate = Gate::new(&limits);
        // Three common slots, and a first one in the reserve.
        assert!((0..4).all(|_| gate.enter(&limits, holder("t", "hangs")).is_none()));
        gate.leave(&limits, holder("t", "hangs"));
        assert!(gate.enter(&limits, holder("u", "hangs")).is_none(), "a common one: the reserve is in use");
        let mut turn = gate.enter(&limits, holder("t", "hangs")).unwrap();
        gate.leave(&limits, holder("u", "hangs"));
        assert!(is_its_turn(&mut turn));
    }

    #[test]
    fn a_call_that_does_not_wait_begins_beyond_the_slots() {
        let limits = limits(1);
        let mut gate = Gate::new(&limits);
        assert!(gate.enter(&limits, holder("t", "a")).is_none());
        gate.enter_at_once(holder("t", "a"));
        let mut turn = gate.enter(&limits, holder("t", "a")).unwrap();
        gate.leave(&limits, holder("t", "a"));
        assert!(!is_its_turn(&mut turn), "one call is still under way");
        gate.leave(&limits, holder("t", "a"));
        assert!(is_its_turn(&mut turn));
    }
}
