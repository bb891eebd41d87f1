//! How an ordering key is named in a column: by a digest of its tenant and itself, whatever the database.
//!
//! So a key needs no number that somebody has to give out and to take back. Two keys with the
//! same digest would take turns with each other, and nothing worse; at 128 bits that does not happen.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The name of a tenant's ordering key.
pub(crate) fn ordering(tenant: &str, key: &str) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(tenant.len().to_le_bytes());
    digest.update(tenant);
    digest.update(key);
    let digest: [u8; 32] = digest.finalize().into();
    let (first, _) = digest.split_first_chunk::<16>().expect("invariant: 32 bytes are more than 16");
    Uuid::from_bytes(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_and_keys_do_not_run_into_each_other() {
        assert_eq!(ordering("a", "bc"), ordering("a", "bc"));
        assert_ne!(ordering("a", "bc"), ordering("ab", "c"));
        assert_ne!(ordering("a", "b"), ordering("a", "B"));
    }
}
