//! From a pattern to instants: the pattern gives local times, and the zone and the rules for clock
//! changes map them to UTC.
//!
//! The meaning of an expression when clocks change:
//!
//! - An hour that only a wildcard (`*` or `*/n`) names runs through: the expression fires at every
//!   instant at which the clocks show a matching time. So it does not fire in a gap, and fires
//!   twice in a fold.
//! - A written hour means times of the day, also beside a wildcard (`2,*/6`). A local time in a gap
//!   does not exist: with [`DstGap::Shift`] it fires at the first instant after the gap, once for
//!   all times in it; with [`DstGap::Skip`] it does not fire. A local time in a fold exists twice:
//!   [`DstFold`] says which of the two fires.
//!
//! The search goes from stretch to stretch of the zone. It jumps over stretches that cannot have a
//! match, and ends after [`HORIZON`].

use serde::{Deserialize, Serialize};

use super::zone::Stretch;
use super::{CronExpression, Interval, Zone};
use crate::civil::DAY;
use crate::time::Timestamp;

/// No instant of a schedule is before 0001-01-01T00:00:00Z.
pub(super) const FIRST: i64 = -62_135_596_800;

/// No instant of a schedule is after 9999-12-30T22:00:00Z, the last second for which there are
/// zones.
pub(super) const LAST: i64 = 253_402_207_200;

/// Two clocks differ by less than this, and so does one clock before and after a change: no zone is
/// 26 hours ahead of or behind UTC.
const FAR: i64 = 26 * 3_600;

/// An expression that does not fire within this time never fires. Its first date is at most 41
/// years away. After that only a gap can keep it from firing. While the rule for the gap stays the
/// same, the weekday decides whether the date is in the gap, and within twelve years the date falls
/// on each weekday. (Only 29 February takes longer; no rule puts a gap there.) A longer search
/// would take too much time, and only for expressions that always fall into a gap.
const HORIZON: i64 = (41 + 12) * 366 * DAY;

/// What happens to a local time that does not exist, because clocks were put forward over it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstGap {
    /// It fires at the first instant after the gap.
    #[default]
    Shift,
    /// It does not fire that day.
    Skip,
}

/// Which of the two instants fires, if clocks were put back and a local time exists twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstFold {
    /// The earlier.
    #[default]
    First,
    /// The later.
    Last,
    /// Both.
    Both,
}

/// What days 29 to 31 of an expression mean in a month that does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DayOverflow {
    /// It does not fire in that month.
    #[default]
    Skip,
    /// It fires on the last day of the month, once for all such days.
    Last,
}

/// The repetition of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Local times.
    Cron(CronExpression),
    /// A length of time.
    Interval(Interval),
}

/// The zone of a pattern, its rules for clock changes, and its bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingRules {
    /// The zone of the local times; intervals ignore it.
    pub zone: Zone,
    /// For local times that do not exist.
    pub dst_gap: DstGap,
    /// For local times that exist twice.
    pub dst_fold: DstFold,
    /// For days that a month does not have; intervals ignore it. Earlier versions stored none.
    #[serde(default)]
    pub day_overflow: DayOverflow,
    /// No instant is before it.
    pub starts_at: Option<Timestamp>,
    /// No instant is after it.
    pub ends_at: Option<Timestamp>,
}

/// A pattern and its rules: together they determine the instants of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The repetition of a schedule.
    pub pattern: Pattern,
    /// The zone and the bounds.
    pub rules: TimingRules,
}

impl Timing {
    /// The first instant after `after`; none when there is no further one.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let earliest = self.rules.starts_at.map_or(FIRST * 1_000, |at| at.as_millis().max(FIRST * 1_000));
        // Apply the bounds first, so that neither end can overflow.
        let after = after.as_millis().max(earliest - 1);
        if after >= LAST * 1_000 {
            return None;
        }
        let next = match &self.pattern {
            Pattern::Interval(interval) => interval.next_after(Timestamp::from_millis(after))?,
            Pattern::Cron(cron) => {
                Timestamp::from_millis(self.next_second(cron, after.div_euclid(1_000) + 1)?.checked_mul(1_000)?)
            }
        };
        let within = next.as_millis() <= LAST * 1_000 && self.rules.ends_at.is_none_or(|end| next <= end);
        within.then_some(next)
    }

    /// The instants from `from` to `to`, both included, computed one by one as the caller takes
    /// them.
    pub fn iter_between(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = Timestamp> + use<'_> {
        let before = Timestamp::from_millis(from.as_millis().saturating_sub(1));
        std::iter::successors(self.next_after(before), |at| self.next_after(*at)).take_while(move |at| *at <= to)
    }

    /// The last instant from `from` to `to`, both included. A binary search finds it, however many
    /// instants there are.
    pub fn last_between(&self, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        let next = |after: i64| self.next_after(Timestamp::from_millis(after)).filter(|at| *at <= to);
        let clamped = |at: Timestamp| at.as_millis().clamp(FIRST * 1_000, LAST * 1_000);
        let mut found = next(clamped(from) - 1)?;
        // No instant is after `high`. There may be one between `found` and `high`.
        let mut high = clamped(to);
        while found.as_millis() < high {
            let middle = found.as_millis() + (high - found.as_millis()) / 2;
            match next(middle) {
                Some(later) => found = later,
                None => high = middle,
            }
        }
        Some(found)
    }

    /// The first second from `start` on that fires.
    fn next_second(&self, cron: &CronExpression, start: i64) -> Option<i64> {
        let mut stretch = self.rules.zone.stretch_at(start);
        loop {
            if stretch.from >= start && self.falls_into_gap_before(cron, &stretch) {
                return Some(stretch.from);
            }
            let begin = start.max(stretch.from);
            let (found, beyond) = self.first_within(cron, &stretch, begin + stretch.ahead);
            if found.is_some() {
                return found;
            }
            // Clocks that are put back show local times again that were rejected here, or that lie
            // before `begin`. Then the very next stretch has to be searched. Otherwise no stretch
            // has a match before its clocks can show `beyond`.
            let next = match beyond {
                Some(beyond) if stretch.until - begin > 2 * FAR => stretch.until.max(beyond - FAR),
                _ => stretch.until,
            };
            if next > LAST || next - start > HORIZON {
                return None;
            }
            stretch = self.rules.zone.stretch_at(next);
        }
    }

    /// The first second of the stretch that fires, from the local second `from` on. If there is
    /// none, and nothing within it was rejected, the first matching local second after the stretch.
    pub(super) fn first_within(
        &self,
        cron: &CronExpression,
        stretch: &Stretch,
        from: i64,
    ) -> (Option<i64>, Option<i64>) {
        let (mut local, mut rejected) = (from, false);
        loop {
            match cron.next_local(self.rules.day_overflow, local) {
                Some(found) if found < stretch.local_until() => match self.rejected_until(cron, stretch, found) {
                    None => return (Some(found - stretch.ahead), None),
                    Some(until) => (local, rejected) = (until, true),
                },
                beyond => return (None, beyond.filter(|_| !rejected)),
            }
        }
    }

    /// If another stretch shows this local second too and fires instead: the local second at which
    /// that stretch ends, or the next hour that runs through begins.
    fn rejected_until(&self, cron: &CronExpression, stretch: &Stretch, local: i64) -> Option<i64> {
        if cron.runs_through(local) {
            return None;
        }
        let at = local - stretch.ahead;
        let other = match self.rules.dst_fold {
            DstFold::Both => None,
            DstFold::First => self.earlier(stretch, at).find(|other| other.shows(local)),
            DstFold::Last => self.later(stretch, at).find(|other| other.shows(local)),
        };
        let until = other?.local_until();
        Some(cron.next_running_through(local).map_or(until, |through| until.min(through)))
    }

    /// Whether a time of the day is in the gap before this stretch, and therefore fires at its
    /// beginning.
    pub(super) fn falls_into_gap_before(&self, cron: &CronExpression, stretch: &Stretch) -> bool {
        if self.rules.dst_gap == DstGap::Skip {
            return false;
        }
        let mut local = self.rules.zone.stretch_at(stretch.from - 1).local_until();
        let next_written = |local| cron.next_written(self.rules.day_overflow, local);
        while let Some(found) = next_written(local).filter(|found| *found < stretch.local_from()) {
            // If clocks are moved twice within a day, another stretch may show it.
            let elsewhere = self
                .earlier(stretch, stretch.from)
                .chain(self.later(stretch, stretch.from))
                .find(|other| other.shows(found));
            match elsewhere {
                None => return true,
                Some(other) => local = other.local_until(),
            }
        }
        false
    }

    /// The earlier stretches whose clocks may show the same local time as at `at`.
    pub(super) fn earlier(&self, stretch: &Stretch, at: i64) -> impl Iterator<Item = Stretch> {
        let before =
            move |this: &Stretch| (at - this.from < 2 * FAR).then(|| self.rules.zone.stretch_at(this.from - 1));
        std::iter::successors(before(stretch), before)
    }

    /// The later stretches whose clocks may show the same local time as at `at`.
    pub(super) fn later(&self, stretch: &Stretch, at: i64) -> impl Iterator<Item = Stretch> {
        let after = move |this: &Stretch| (this.until - at < 2 * FAR).then(|| self.rules.zone.stretch_at(this.until));
        std::iter::successors(after(stretch), after)
    }
}
