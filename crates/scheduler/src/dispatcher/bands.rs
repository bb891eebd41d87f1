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
}

impl LaneCandidate {
    pub fn of(rank: Rank, aging: Aging, now: Timestamp) -> Self {
        let priority = aging.priority(rank.priority(), rank.due_at, now);
        Self { less_urgent: u8::MAX - priority, due_at: rank.due_at, lane: rank.lane }
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

    /// The lanes of a claim of at most `limit` tasks, from candidates in their order. Each band
    /// gets at most its `band_max`.
    pub fn split(
        &mut self,
        tenant: &str,
        candidates: &[LaneCandidate],
        limit: usize,
        band_max: [usize; 3],
    ) -> (Vec<(LaneId, usize)>, BandSplit) {
        let bands: HashMap<LaneId, Band> = candidates.iter().map(|one| (one.lane, one.band())).collect();
        let count = Band::ALL.map(|band| candidates.iter().filter(|one| one.band() == band).count());
        let unbounded = candidates.iter().map(|one| (one.lane, limit.min(band_max[one.band() as usize])));
        let split = |shares| BandSplit { tenant: tenant.to_owned(), bands, shares };
        let waiting = count.map(|lanes| lanes > 0);
        if waiting.iter().filter(|waits| **waits).count() < 2 {
            return (unbounded.collect(), split(None));
        }
        let credits = self.credits.entry(tenant.to_owned()).or_default();
        let shares = credits.split(self.weights, limit, waiting);
        let share = |one: &LaneCandidate| {
            let band = one.band() as usize;
            (one.lane, shares[band].div_ceil(count[band]).min(band_max[band]))
        };
        let first = candidates.iter().map(share).filter(|(_, share)| *share > 0);
        (first.chain(unbounded).collect(), split(Some(shares)))
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
    fn a_band_gets_no_more_than_it_may_have() {
        let (lanes, _) = BandShares::default().split("t", &candidates(&[(1, 5), (2, 9)]), 100, [3, usize::MAX, 0]);
        assert_eq!(numbers(&lanes), [(2, 3), (1, 26), (2, 3), (1, 100)]);
    }
}
