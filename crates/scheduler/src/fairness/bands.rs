//! The bands of priorities, and how they share what a tenant may claim. Pure.
//!
//! Every band has a share by its weight. A share of less than a task is kept as credit, so over
//! many claims every band gets exactly its share. A band without waiting tasks has no credit: its
//! share goes to the others. Invariant: the credits of a tenant add up to zero between claims.

/// A class of priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// 7 to 9.
    High,
    /// 4 to 6.
    Normal,
    /// 0 to 3.
    Low,
}

impl Band {
    /// All of them, the most urgent first.
    pub const ALL: [Band; 3] = [Band::High, Band::Normal, Band::Low];

    /// The band of a priority.
    pub const fn of(priority: u8) -> Self {
        match priority {
            0..=3 => Band::Low,
            4..=6 => Band::Normal,
            _ => Band::High,
        }
    }

    /// The word in a setting or a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Band::High => "high",
            Band::Normal => "normal",
            Band::Low => "low",
        }
    }
}

/// How much each band weighs, in the order of [`Band::ALL`]; each at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandWeights([u32; 3]);

impl BandWeights {
    /// High, normal and low; a weight of zero counts as one, since every band has a share.
    pub fn new(high: u32, normal: u32, low: u32) -> Self {
        Self([high, normal, low].map(|weight| weight.max(1)))
    }

    fn of(self, band: Band) -> i64 {
        i64::from(self.0[band as usize])
    }
}

impl Default for BandWeights {
    fn default() -> Self {
        Self([70, 25, 5])
    }
}

/// The unit in which credit is counted: parts of a task.
const TASK: i64 = 1_000_000;
/// Credit never exceeds this many tasks, whatever a store answers.
const CREDIT_MAX: i64 = 10_000 * TASK;

/// What each band of one tenant is owed; negative if it got too much.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credits([i64; 3]);

impl Credits {
    /// Splits `tasks` between the bands that have tasks `waiting`. All of it is split, unless no
    /// band waits.
    pub fn split(&mut self, weights: BandWeights, tasks: usize, waiting: [bool; 3]) -> [usize; 3] {
        let among: Vec<Band> = Band::ALL.into_iter().filter(|band| waiting[*band as usize]).collect();
        let Some(first) = among.first() else { return [0; 3] };
        self.forget_all_but(waiting);
        let pot = i64::try_from(tasks).unwrap_or(i64::MAX).saturating_mul(TASK).min(CREDIT_MAX);
        let (all, mut rest) = (among.iter().map(|band| weights.of(*band)).sum::<i64>(), pot);
        for band in &among {
            let part = pot / all * weights.of(*band);
            self.0[*band as usize] += part;
            rest -= part;
        }
        self.0[*first as usize] += rest;
        let (mut shares, mut left) = ([0_usize; 3], usize::try_from(pot / TASK).unwrap_or(0));
        while left > 0 {
            // With equal credit the more urgent band is first.
            let next = among.iter().rev().max_by_key(|band| self.0[**band as usize]).copied().unwrap_or(*first);
            let credit = self.0[next as usize];
            let whole = usize::try_from(credit / TASK).unwrap_or(0).clamp(1, left);
            shares[next as usize] += whole;
            self.0[next as usize] -= i64::try_from(whole).unwrap_or(i64::MAX).saturating_mul(TASK);
            left -= whole;
        }
        debug_assert_eq!(shares.iter().sum::<usize>(), usize::try_from(pot / TASK).unwrap_or(0), "all of it is split");
        shares
    }

    /// Corrects the credits after a claim: `taken` tasks of each band instead of its share. Only
    /// bands that still have tasks `waiting` are owed the difference.
    pub fn reconcile(&mut self, shares: [usize; 3], taken: [usize; 3], waiting: [bool; 3]) {
        for at in 0..3 {
            let (share, taken) = (i64::try_from(shares[at]), i64::try_from(taken[at]));
            let owed = share.unwrap_or(0).saturating_sub(taken.unwrap_or(0)).saturating_mul(TASK);
            self.0[at] = self.0[at].saturating_add(owed).clamp(-CREDIT_MAX, CREDIT_MAX);
        }
        self.forget_all_but(waiting);
    }

    /// Whether every band is even.
    pub fn is_even(&self) -> bool {
        self.0 == [0; 3]
    }

    /// Forgets the credit of the bands that do not wait, and spreads the difference over the
    /// others, so that the sum stays zero.
    fn forget_all_but(&mut self, waiting: [bool; 3]) {
        for (credit, waits) in self.0.iter_mut().zip(waiting) {
            *credit = if waits { *credit } else { 0 };
        }
        let among = i64::try_from(waiting.iter().filter(|waits| **waits).count()).unwrap_or(0);
        if among == 0 {
            return;
        }
        let mut excess: i64 = self.0.iter().sum();
        let each = excess / among;
        for (credit, _) in self.0.iter_mut().zip(waiting).filter(|(_, waits)| *waits) {
            *credit -= each;
            excess -= each;
        }
        if let Some((credit, _)) = self.0.iter_mut().zip(waiting).find(|(_, waits)| *waits) {
            *credit -= excess;
        }
        debug_assert_eq!(self.0.iter().sum::<i64>(), 0, "one band is owed what another got too much");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [bool; 3] = [true; 3];

    #[test]
    fn every_priority_has_a_band() {
        let bands: Vec<&str> = (0..=9).map(|priority| Band::of(priority).as_str()).collect();
        assert_eq!(bands[..4], ["low"; 4]);
        assert_eq!(bands[4..7], ["normal"; 3]);
        assert_eq!(bands[7..], ["high"; 3]);
    }

    #[test]
    fn a_thousand_single_tasks_are_shared_exactly() {
        let (mut credits, mut got) = (Credits::default(), [0; 3]);
        for _ in 0..1_000 {
            let shares = credits.split(BandWeights::default(), 1, ALL);
            got.iter_mut().zip(shares).for_each(|(got, share)| *got += share);
        }
        assert_eq!(got, [700, 250, 50]);
    }

    #[test]
    fn a_batch_is_shared_at_once() {
        assert_eq!(Credits::default().split(BandWeights::default(), 100, ALL), [70, 25, 5]);
        assert_eq!(Credits::default().split(BandWeights::new(1, 1, 0), 9, ALL), [3, 3, 3]);
    }

    #[test]
    fn a_share_that_a_band_cannot_use_goes_to_the_others() {
        assert_eq!(Credits::default().split(BandWeights::default(), 10, [false, false, true]), [0, 0, 10]);
        assert_eq!(Credits::default().split(BandWeights::default(), 100, [true, false, true]), [93, 0, 7]);
        assert_eq!(Credits::default().split(BandWeights::default(), 100, [false; 3]), [0; 3]);
    }

    #[test]
    fn only_a_band_that_still_waits_is_owed_its_share() {
        let mut credits = Credits::default();
        let shares = credits.split(BandWeights::default(), 100, ALL);
        // The high band had only 10 tasks. The low band got nothing although tasks wait.
        credits.reconcile(shares, [10, 90, 0], [false, true, true]);
        let next = credits.split(BandWeights::default(), 30, [false, true, true]);
        assert!(next[2] > 5, "{next:?}");
        credits.reconcile(next, next, [false, false, true]);
        assert!(credits.is_even());
    }

    proptest! {
        #[test]
        fn everything_is_split_and_every_band_gets_its_share(
            weights in [1_u32..100, 1_u32..100, 1_u32..100],
            asks in proptest::collection::vec(1_usize..50, 1..200),
        ) {
            let weights = BandWeights::new(weights[0], weights[1], weights[2]);
            let (mut credits, mut got) = (Credits::default(), [0_usize; 3]);
            for ask in &asks {
                let shares = credits.split(weights, *ask, ALL);
                prop_assert_eq!(shares.iter().sum::<usize>(), *ask);
                got.iter_mut().zip(shares).for_each(|(got, share)| *got += share);
            }
            let all = i64::try_from(asks.iter().sum::<usize>()).unwrap();
            let weight: i64 = Band::ALL.map(|band| weights.of(band)).iter().sum();
            for band in Band::ALL {
                let got = i64::try_from(got[band as usize]).unwrap();
                let (got, fair) = (got * weight, all * weights.of(band));
                prop_assert!((got - fair).abs() <= 2 * weight, "{band:?} {got} {fair}");
            }
        }

        #[test]
        fn no_band_starves_however_the_others_come_and_go(
            others in proptest::collection::vec((any::<bool>(), any::<bool>()), 400),
        ) {
            let (mut credits, mut low) = (Credits::default(), 0);
            for (high, normal) in others {
                let waiting = [high, normal, true];
                let shares = credits.split(BandWeights::default(), 1, waiting);
                prop_assert!(shares.iter().zip(waiting).all(|(share, waits)| waits || *share == 0));
                credits.reconcile(shares, shares, waiting);
                low += shares[2];
            }
            prop_assert!(low >= 400 / 20 - 3, "{low}");
        }
    }
}
