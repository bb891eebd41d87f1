//! Decides which tasks of its queue are dispatched before a task. Pure.

use punctual_core::time::Timestamp;

use super::LanePlace;

/// A task and its priority.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedTask {
    /// Its place in its lane.
    pub own: LanePlace,
    /// Its priority.
    pub priority: u8,
    /// Waiting this long raises the priority by one; zero switches aging off.
    pub aging_millis: i64,
    pub now: Timestamp,
}

/// The most urgent priority.
const MOST_URGENT: u8 = 9;

impl RankedTask {
    /// The lowest priority whose tasks may go before it.
    pub(super) fn least_urgent(&self) -> u8 {
        if self.aging_millis > 0 { 0 } else { self.priority }
    }

    /// In a lane of this priority, the tasks before this place go first.
    pub(super) fn place_before(&self, priority: u8) -> LanePlace {
        let own = self.counts_as();
        let more_urgent = self.due_by(priority, own.saturating_add(1)).map(|due_at| (due_at, i64::MAX));
        let as_urgent = self.due_by(priority, own).map(|due_at| (due_at, i64::MAX).min(self.own));
        more_urgent.max(as_urgent).unwrap_or((i64::MIN, i64::MIN))
    }

    /// The effective priority of the task.
    fn counts_as(&self) -> u8 {
        let waited = self.now.as_millis().saturating_sub(self.own.0).max(0);
        let raised = waited.checked_div(self.aging_millis).unwrap_or(0);
        let raised = self.priority.saturating_add(u8::try_from(raised).unwrap_or(u8::MAX));
        raised.min(MOST_URGENT.max(self.priority))
    }

    /// When a task of this priority must have been due to have the effective priority `wanted` by
    /// now.
    fn due_by(&self, priority: u8, wanted: u8) -> Option<i64> {
        let now = self.now.as_millis();
        if wanted <= priority {
            return Some(now);
        }
        let can_rise = self.aging_millis > 0 && wanted <= MOST_URGENT;
        let wait = i64::from(wanted - priority).saturating_mul(self.aging_millis);
        can_rise.then(|| now.saturating_sub(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The effective priority, written without the bounds.
    fn counts_as(priority: u8, due_at: i64, aging_millis: i64, now: i64) -> i64 {
        let raised = if aging_millis == 0 { 0 } else { (now - due_at) / aging_millis };
        (i64::from(priority) + raised).min(9)
    }

    #[test]
    fn more_urgent_tasks_and_earlier_equals_go_first() {
        let now = 60;
        let instants = || (0..=now).step_by(5);
        for (own, other) in instants().flat_map(|own| instants().map(move |other| (own, other))) {
            for (priority, of_other) in (0..=9).flat_map(|own| (0..=9).map(move |other| (own, other))) {
                for (aging_millis, seq) in [0, 1, 5, 7, 25, 100].into_iter().flat_map(|aging| [(aging, 4), (aging, 5)])
                {
                    let ranked = RankedTask { own: (own, 5), priority, aging_millis, now: Timestamp::from_millis(now) };
                    let mine = counts_as(priority, own, aging_millis, now);
                    let theirs = counts_as(of_other, other, aging_millis, now);
                    let expected = theirs > mine || theirs == mine && (other, seq) < (own, 5);
                    assert_eq!((other, seq) < ranked.place_before(of_other), expected, "{ranked:?} {of_other} {other}");
                    assert!(!expected || of_other >= ranked.least_urgent());
                }
            }
        }
    }
}
