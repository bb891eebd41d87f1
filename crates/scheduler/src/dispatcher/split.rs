//! Lanes of a claim by bands: each lane first with its part of its band's share, then all of them without bound.

use std::collections::HashMap;

use punctual_core::lane::LaneId;
use punctual_core::store::Claimed;
use punctual_core::time::Timestamp;

use super::flights::Split;
use crate::board::{Board, Rank};
use crate::fairness::{Aging, Band, BandWeights, Credits};

/// A lane that may be claimed from, and how urgent it is by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    less_urgent: u8,
    pub due_at: Timestamp,
    pub lane: LaneId,
}

impl Candidate {
    pub fn of(rank: Rank, aging: Aging, now: Timestamp) -> Self {
        let priority = aging.priority(rank.priority(), rank.due_at, now);
        Self { less_urgent: u8::MAX - priority, due_at: rank.due_at, lane: rank.lane }
    }

    pub fn band(self) -> Band {
        Band::of(u8::MAX - self.less_urgent)
    }
}

/// The credits of the tenants that have more than one band waiting.
#[derive(Debug, Default)]
pub(super) struct Bands {
    weights: BandWeights,
    credits: HashMap<String, Credits>,
}

impl Bands {
    pub fn new(weights: BandWeights) -> Self {
        Self { weights, credits: HashMap::new() }
    }

    /// The lanes of a claim of up to `limit` tasks, from candidates in their order, and of each band at most so many.
    pub fn split(
        &mut self,
        tenant: &str,
        candidates: &[Candidate],
        limit: usize,
        most: [usize; 3],
    ) -> (Vec<(LaneId, usize)>, Split) {
        let bands: HashMap<LaneId, Band> = candidates.iter().map(|one| (one.lane, one.band())).collect();
        let count = Band::ALL.map(|band| candidates.iter().filter(|one| one.band() == band).count());
        let unbounded = candidates.iter().map(|one| (one.lane, limit.min(most[one.band() as usize])));
        let split = |shares| Split { tenant: tenant.to_owned(), bands, shares };
        let waiting = count.map(|lanes| lanes > 0);
        if waiting.iter().filter(|waits| **waits).count() < 2 {
            return (unbounded.collect(), split(None));
        }
        let credits = self.credits.entry(tenant.to_owned()).or_default();
        let shares = credits.split(self.weights, limit, waiting);
        let share = |one: &Candidate| {
            let band = one.band() as usize;
            (one.lane, shares[band].div_ceil(count[band]).min(most[band]))
        };
        let first = candidates.iter().map(share).filter(|(_, share)| *share > 0);
        (first.chain(unbounded).collect(), split(Some(shares)))
    }

    /// Nothing came of claims.
    pub fn settle_failed(&mut self, splits: &[Split], board: &Board) {
        for split in splits {
            self.settle(split, None, board);
        }
    }

    /// What came of a claim. The board has learned from it.
    pub fn settle(&mut self, split: &Split, claimed: Option<&Claimed>, board: &Board) {
        let Some(shares) = split.shares else { return };
        let Some(credits) = self.credits.get_mut(&split.tenant) else { return };
        let (mut taken, mut waiting) = ([0; 3], [false; 3]);
        for task in claimed.map(|claimed| &claimed.tasks).into_iter().flatten() {
            if let Some(band) = split.bands.get(&task.lane.id) {
                taken[*band as usize] += 1;
            }
        }
        for (lane, band) in &split.bands {
            waiting[*band as usize] |= board.is_ready(*lane);
        }
        credits.settle(shares, taken, waiting);
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

    fn candidates(lanes: &[(i64, u8)]) -> Vec<Candidate> {
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
            Candidate::of(Rank::of(&lane, due_at), Aging::new(Duration::ZERO), due_at)
        });
        let mut candidates: Vec<Candidate> = each.collect();
        candidates.sort_unstable();
        candidates
    }

    fn numbers(lanes: &[(LaneId, usize)]) -> Vec<(i64, usize)> {
        lanes.iter().map(|(lane, most)| (lane.number(), *most)).collect()
    }

    const ANY: [usize; 3] = [usize::MAX; 3];

    #[test]
    fn lanes_of_one_band_are_named_once() {
        let (lanes, split) = Bands::default().split("t", &candidates(&[(1, 5), (2, 6)]), 10, ANY);
        assert_eq!(numbers(&lanes), [(2, 10), (1, 10)]);
        assert!(split.shares.is_none());
    }

    #[test]
    fn every_band_is_named_with_its_share_and_then_without_bound() {
        let lanes = candidates(&[(1, 1), (2, 5), (3, 9), (4, 9)]);
        let (lanes, split) = Bands::default().split("t", &lanes, 100, ANY);
        let shares = [(3, 35), (4, 35), (2, 25), (1, 5)];
        assert_eq!(numbers(&lanes), [&shares[..], &[(3, 100), (4, 100), (2, 100), (1, 100)]].concat());
        assert_eq!(split.shares, Some([70, 25, 5]));
    }

    #[test]
    fn no_more_of_a_band_than_it_may_have() {
        let (lanes, _) = Bands::default().split("t", &candidates(&[(1, 5), (2, 9)]), 100, [3, usize::MAX, 0]);
        assert_eq!(numbers(&lanes), [(2, 3), (1, 26), (2, 3), (1, 100)]);
    }
}
