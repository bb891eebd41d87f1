//! Jitter that is the same on every node: an occurrence is due at the same instant, whichever node
//! fires it.

use sha2::{Digest, Sha256};

use crate::ids::ScheduleId;
use crate::time::Timestamp;

/// Milliseconds from 0 to `max`, spread evenly over schedules and instants, and always the same for
/// the same occurrence.
pub fn jitter_millis(schedule: ScheduleId, instant: Timestamp, max: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update(schedule.uuid().as_bytes());
    hash.update(instant.as_millis().to_be_bytes());
    let digest = hash.finalize();
    let mut drawn = [0; 8];
    drawn.copy_from_slice(&digest[..8]);
    // The upper half of the product instead of a remainder: as even as 64 bits can be.
    let spread = u128::from(u64::from_be_bytes(drawn)) * (u128::from(max) + 1);
    u64::try_from(spread >> 64).expect("invariant: below max + 1")
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_same_occurrence_has_the_same_jitter_in_every_release() {
        let schedule = ScheduleId::from_uuid(Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001));
        let at = Timestamp::from_millis(1_779_472_800_000);
        assert_eq!(jitter_millis(schedule, at, 60_000), 42_580);
    }

    #[test]
    fn jitter_is_spread_evenly_up_to_its_maximum_and_no_further() {
        let mut tenths = [0_u32; 10];
        for number in 0..10_000_u32 {
            let schedule = ScheduleId::from_uuid(Uuid::from_u128(u128::from(number / 100)));
            let jitter = jitter_millis(schedule, Timestamp::from_millis(i64::from(number % 100) * 60_000), 999);
            assert!(jitter <= 999);
            tenths[usize::try_from(jitter / 100).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
        let schedule = ScheduleId::from_uuid(Uuid::nil());
        let drawn = |max| (0..64).map(move |n| jitter_millis(schedule, Timestamp::from_millis(n), max));
        assert!(drawn(0).all(|jitter| jitter == 0));
        assert!(drawn(1).any(|jitter| jitter == 0) && drawn(1).any(|jitter| jitter == 1));
        assert!(drawn(u64::MAX).any(|jitter| jitter > u64::MAX / 2));
    }
}
