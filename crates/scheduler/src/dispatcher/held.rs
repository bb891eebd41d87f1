//! The lanes that a turn was not given what it wanted from, and when they are tried again.

use std::sync::Arc;

use punctual_core::lane::Lane;
use punctual_core::store::Claimed;
use punctual_core::time::Timestamp;

use crate::dispatcher::Dispatcher;

impl Dispatcher {
    /// Takes lanes off the board whose queues let nothing through.
    pub(super) fn hold_back(&mut self, answer: &Claimed) {
        let now = self.deps.clock.now();
        for held in &answer.limited {
            let found = self.backlog.take_away(held.lane);
            let Some((lane, head)) =
                self.board.take_away(held.lane).into_iter().chain(found).min_by_key(|(_, head)| *head)
            else {
                continue;
            };
            if head > now {
                self.board.note(&lane, head, now);
            } else {
                self.gated.hold(lane, head, held.until, now);
            }
        }
    }

    /// Puts lanes back whose queues may let something through again.
    pub(super) fn let_go(&mut self) {
        let now = self.deps.clock.now();
        let mut free = self.gated.take_due(now);
        let (everywhere, queues) = self.deps.hints.take_freed();
        self.freed_everywhere |= everywhere;
        self.freed.extend(queues);
        if self.freed_everywhere {
            free.extend(self.gated.take_all());
        }
        for (tenant, queue) in &self.freed {
            free.extend(self.gated.take_queue(tenant, queue));
        }
        self.free_probes();
        // A claim that is under way may have been held back just before.
        self.freed_everywhere &= !self.flights.is_empty();
        let is_any = self.flights.is_pushing() || self.flights.probes() > 0;
        self.freed.retain(|(tenant, _)| is_any || self.flights.is_pulling(tenant));
        for (lane, head) in free {
            self.note(&lane, head, now);
        }
    }

    /// A task of a lane waits and is due then: the board is told, unless the lane is held back.
    pub(super) fn note(&mut self, lane: &Arc<Lane>, due_at: Timestamp, now: Timestamp) {
        if self.breakers.is_over(&lane.key) {
            self.note_broken(lane, due_at, now);
        } else if !self.gated.note(lane.id, due_at) {
            self.board.note(lane, due_at, now);
        }
    }
    /// The same of a lane under an open breaker. As on the board, what is due later than soon is not kept.
    pub(super) fn note_broken(&mut self, lane: &Arc<Lane>, due_at: Timestamp, now: Timestamp) {
        let window = i64::try_from(self.config.prefetch_window.as_millis()).unwrap_or(i64::MAX);
        if due_at <= now.plus_millis(window) {
            self.broken.note(lane, due_at);
        }
    }
}
