//! The throttle of credentials that are not valid.
//!
//! Failures are counted by the peer's network and the key that was claimed, and by the network
//! alone. Beyond a number of them in a minute the answer is 429 instead of 401, and an id that is
//! not in memory is not looked up, nor is a token verified that was not verified before. A valid
//! credential that is remembered is never throttled: others behind the same proxy must not be
//! locked out, and 256 random bits cannot be guessed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::KeyId;
use tokio::time::Instant;

/// The time after the first failure in which failures are counted together.
const WINDOW: Duration = Duration::from_mins(1);
/// How many failures with one key are answered with 401.
const OF_KEY: u32 = 10;
/// How many failures from one network are.
const OF_NETWORK: u32 = 100;
/// The maximum number of counts in memory.
const COUNTS_KEPT: usize = 10_000;

/// The counts of failures (see the module).
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<(IpAddr, Option<KeyId>), FailureCount>>);

#[derive(Clone, Copy, Debug)]
struct FailureCount {
    failures: u32,
    since: Instant,
}

impl FailureCount {
    fn left(&self) -> Option<Duration> {
        WINDOW.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())
    }
}

impl Throttle {
    /// For how many seconds more this peer gets no reads of keys that are not in memory.
    pub fn blocks(&self, from: IpAddr) -> Option<u32> {
        let counts = self.0.lock();
        let count = counts.get(&(network(from), None)).filter(|count| count.failures >= OF_NETWORK)?;
        count.left().map(seconds)
    }

    /// Counts a failure. Returns for how many seconds the peer should wait, if there were many.
    pub fn failed(&self, from: IpAddr, key: Option<KeyId>) -> Option<u32> {
        let mut counts = self.0.lock();
        let from = network(from);
        let of_key = key.and_then(|key| count(&mut counts, (from, Some(key)), OF_KEY));
        let of_network = count(&mut counts, (from, None), OF_NETWORK);
        of_key.max(of_network).map(seconds)
    }
}

/// Counts a failure; the rest of the window if it is beyond `most`.
fn count(
    counts: &mut HashMap<(IpAddr, Option<KeyId>), FailureCount>,
    of: (IpAddr, Option<KeyId>),
    most: u32,
) -> Option<Duration> {
    if counts.len() >= COUNTS_KEPT && !counts.contains_key(&of) {
        make_room(counts);
    }
    let fresh = FailureCount { failures: 0, since: Instant::now() };
    let count = counts.entry(of).or_insert(fresh);
    if count.left().is_none() {
        *count = fresh;
    }
    count.failures = count.failures.saturating_add(1);
    if count.failures > most { count.left() } else { None }
}

/// Forgets what is over; if there is nothing, the counts of keys, and then everything. A flood of
/// networks is then counted from zero, which is no worse than one from networks that are new.
fn make_room(counts: &mut HashMap<(IpAddr, Option<KeyId>), FailureCount>) {
    counts.retain(|_, count| count.left().is_some());
    if counts.len() >= COUNTS_KEPT {
        counts.retain(|(_, key), _| key.is_none());
    }
    if counts.len() >= COUNTS_KEPT {
        counts.clear();
    }
}

/// The network that a peer has to itself: one customer has 2^64 addresses of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn seconds(left: Duration) -> u32 {
    u32::try_from(left.as_secs()).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 1));
    const BESIDE: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 9, 9, 9, 9));
    const OTHER: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 8, 0, 0, 0, 1));

    #[tokio::test(start_paused = true)]
    async fn failures_with_one_key_are_throttled_for_a_minute() {
        let (throttle, key) = (Throttle::default(), Some(KeyId::new()));
        for _ in 0..OF_KEY {
            assert_eq!(throttle.failed(ONE, key), None);
        }
        assert_eq!(throttle.failed(BESIDE, key), Some(61), "the same network");
        assert_eq!(throttle.failed(ONE, Some(KeyId::new())), None);
        assert_eq!(throttle.failed(OTHER, key), None);
        assert_eq!(throttle.blocks(ONE), None, "the network is not throttled");
        tokio::time::advance(WINDOW).await;
        assert_eq!(throttle.failed(ONE, key), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_from_one_network_are_throttled() {
        let throttle = Throttle::default();
        for _ in 0..OF_NETWORK {
            assert_eq!(throttle.failed(ONE, Some(KeyId::new())), None);
        }
        assert_eq!(throttle.failed(ONE, None), Some(61));
        assert_eq!(throttle.blocks(BESIDE), Some(61));
        assert_eq!(throttle.blocks(OTHER), None);
        tokio::time::advance(WINDOW).await;
        assert_eq!(throttle.blocks(ONE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_counts_are_bounded() {
        let throttle = Throttle::default();
        for number in 0..3 * u32::try_from(COUNTS_KEPT).unwrap() {
            throttle.failed(IpAddr::V4(number.into()), Some(KeyId::new()));
            assert!(throttle.0.lock().len() <= COUNTS_KEPT + 1);
        }
    }
}
