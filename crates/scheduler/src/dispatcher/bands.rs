//! How the lanes of a claim are split between the bands of its tenant. Pure.
//!
//! The pull side and the push side call it. A claim names each lane first with its part of its
//! band's share, and then all lanes without a bound. So no task stays unclaimed because of a share.

use std::collections::HashMap;

use punctual_core::lane::LaneId;
use punctual_core::store::Claimed;
use punctual_core::time::Timestamp;

use crate::fairness::{Aging, Band, BandWeights, Credits};
use crate::lanes::{Lanes, Rank};

/// A lane that may be claimed from, in the order of its effective priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneCandidate {
    less_urgent: u8,
    pub due_at: Timestamp,
    pub lane: LaneId,
    /// The band of its own priority. Slots count by it, since waiting does not change it.
    pub slot_band: Band,
}

impl LaneCandidate {
    pub fn of(rank: Rank, aging: Aging, now: Timestamp) -> Self {
        let priority = aging.priority(rank.priority(), rank.due_at, now);
        let slot_band = Band::of(rank.priority());
        Self { less_urgent: u8::MAX - priority, due_at: rank.due_at, lane: rank.lane, slot_band }
    }

    pub fn band(self) -> Band {
        Band::of(u8::MAX - self.less_urgent)
    }
}

/// How a claim is split between the bands of its tenant.
pub(super) struct BandSplit {
    pub tenant: String,
    /// The lanes of the claim and their bands.
    pub bands: HashMap<LaneId, Band>,
    /// None if all lanes are of one band.
    pub shares: Option<[usize; 3]>,
}

/// The credits of the tenants that have more than one band waiting.
#[derive(Debug, Default)]
pub(super) struct BandShares {
    weights: BandWeights,
    credits: HashMap<String, Credits>,
}

impl BandShares {
    pub fn new(weights: BandWeights) -> Self {
        Self { weights, credits: HashMap::new() }
    }

    /// The lanes of a claim of at most `limit` tasks, from candidates in their order. The lanes of
    /// a slot band get at most its `band_max` together.
    pub fn split(
        &mut self,
        tenant: &str,
        candidates: &[LaneCandidate],
        limit: usize,
        band_max: [usize; 3],
    ) -> (Vec<(LaneId, usize)>, BandSplit) {
        let bands: HashMap<LaneId, Band> = candidates.iter().map(|one| (one.lane, one.band())).collect();
        let count = Band::ALL.map(|band| candidates.iter().filter(|one| one.band() == band).count());
        let split = |shares| BandSplit { tenant: tenant.to_owned(), bands, shares };
        let most = lane_bounds(candidates, limit, band_max);
        let waiting = count.map(|lanes| lanes > 0);
        if waiting.iter().filter(|waits| **waits).count() < 2 {
            let lanes = candidates.iter().zip(most).map(|(one, most)| (one.lane, most));
            return (lanes.filter(|(_, most)| *most > 0).collect(), split(None));
        }
        let credits = self.credits.entry(tenant.to_owned()).or_default();
        let shares = credits.split(self.weights, limit, waiting);
        let share = |one: &LaneCandidate| shares[one.band() as usize].div_ceil(count[one.band() as usize]);
        let first = candidates.iter().zip(&most).map(|(one, most)| (one.lane, share(one).min(*most)));
        let rest = candidates.iter().zip(&most).map(|(one, most)| {
            // A lane that has no bound of its own may take what other lanes leave.
            (one.lane, if *most == limit { limit } else { most - share(one).min(*most) })
        });
        let lanes = first.chain(rest).filter(|(_, most)| *most > 0).collect();
        (lanes, split(Some(shares)))
    }

    /// Gives back the shares of claims that failed.
    pub fn reconcile_failed(&mut self, splits: &[BandSplit], lanes: &Lanes) {
        for split in splits {
            self.reconcile(split, None, lanes);
        }
    }

    /// Compares what a claim took with its shares, and keeps the difference as credit. The lanes
    /// must have been corrected by the answer.
    pub fn reconcile(&mut self, split: &BandSplit, claimed: Option<&Claimed>, lanes: &Lanes) {
        let Some(shares) = split.shares else { return };
        let Some(credits) = self.credits.get_mut(&split.tenant) else { return };
        let (mut taken, mut waiting) = ([0; 3], [false; 3]);
        for task in claimed.map(|claimed| &claimed.tasks).into_iter().flatten() {
            if let Some(band) = split.bands.get(&task.lane.id) {
                taken[*band as usize] += 1;
            }
        }
        for (lane, band) in &split.bands {
            waiting[*band as usize] |= lanes.is_ready(*lane);
        }
        credits.reconcile(shares, taken, waiting);
        if credits.is_even() {
            self.credits.remove(&split.tenant);
        }
    }
}

/// How many tasks each lane may take. If its slot band may not take the whole claim, the lanes of
/// the band share what it may take evenly; the first ones get the remainder.
fn lane_bounds(candidates: &[LaneCandidate], limit: usize, band_max: [usize; 3]) -> Vec<usize> {
    let lanes = Band::ALL.map(|band| candidates.iter().filter(|one| one.slot_band == band).count());
    let mut seen = [0; 3];
    let bound = |one: &LaneCandidate| {
        let band = one.slot_band as usize;
        let at = seen[band];
        seen[band] += 1;
        if band_max[band] >= limit {
            return limit;
        }
        band_max[band] / lanes[band] + usize::from(at < band_max[band] % lanes[band])
    };
    candidates.iter().map(bound).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use punctual_core::lane::{Lane, LaneKey, Route};

    use super::*;

    fn candidates(lanes: &[(i64, u8)]) -> Vec<LaneCandidate> {
        let each = lanes.iter().map(|(number, priority)| {
            let key = LaneKey {
                tenant: "t".into(),
                queue: "q".into(),
                kind: "k".into(),
                priority: *priority,
                route: Route::Pull,
            };
            let lane = Arc::new(Lane { id: LaneId::new(*number), key });
            let due_at = Timestamp::from_millis(*number);
            LaneCandidate::of(Rank::of(&lane, due_at), Aging::new(Duration::ZERO), due_at)
        });
        let mut candidates: Vec<LaneCandidate> = each.collect();
        candidates.sort_unstable();
        candidates
    }

    fn numbers(lanes: &[(LaneId, usize)]) -> Vec<(i64, usize)> {
        lanes.iter().map(|(lane, most)| (lane.number(), *most)).collect()
    }

    const ANY: [usize; 3] = [usize::MAX; 3];

    #[test]
    fn lanes_of_one_band_are_named_once() {
        let (lanes, split) = BandShares::default().split("t", &candidates(&[(1, 5), (2, 6)]), 10, ANY);
        assert_eq!(numbers(&lanes), [(2, 10), (1, 10)]);
        assert!(split.shares.is_none());
    }

    #[test]
    fn every_band_is_named_with_its_share_and_then_without_bound() {
        let lanes = candidates(&[(1, 1), (2, 5), (3, 9), (4, 9)]);
        let (lanes, split) = BandShares::default().split("t", &lanes, 100, ANY);
        let shares = [(3, 35), (4, 35), (2, 25), (1, 5)];
        assert_eq!(numbers(&lanes), [&shares[..], &[(3, 100), (4, 100), (2, 100), (1, 100)]].concat());
        assert_eq!(split.shares, Some([70, 25, 5]));
    }

    #[test]
    fn the_lanes_of_a_band_get_no_more_than_it_may_have() {
        let lanes = candidates(&[(1, 5), (2, 9), (3, 9), (4, 1)]);
        let (lanes, _) = BandShares::default().split("t", &lanes, 100, [3, usize::MAX, 0]);
        assert_eq!(numbers(&lanes), [(2, 2), (3, 1), (1, 25), (1, 100)]);
        let lanes = candidates(&[(1, 5), (2, 5)]);
        let (lanes, _) = BandShares::default().split("t", &lanes, 100, [0, 3, 0]);
        assert_eq!(numbers(&lanes), [(1, 2), (2, 1)]);
    }
}
