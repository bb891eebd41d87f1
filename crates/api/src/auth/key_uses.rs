//! When keys were last used on this node, until that is written.

use std::collections::HashMap;

use parking_lot::Mutex;
use punctual_core::ids::KeyId;
use punctual_core::time::Timestamp;

/// The maximum number of keys in memory. A use beyond that is noted when the key is used again.
const KEYS_NOTED: usize = 10_000;

/// The last use of each key since the last time they were taken.
#[derive(Debug, Default)]
pub(super) struct KeyUses(Mutex<HashMap<KeyId, Timestamp>>);

impl KeyUses {
    /// Notes a use.
    pub fn note(&self, key: KeyId, now: Timestamp) {
        let mut uses = self.0.lock();
        if uses.len() < KEYS_NOTED || uses.contains_key(&key) {
            uses.insert(key, now);
        }
    }

    /// Takes all uses.
    pub fn take(&self) -> Vec<(KeyId, Timestamp)> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }
}
