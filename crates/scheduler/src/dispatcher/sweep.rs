//! The sweep: reads the heads of all lanes from the store, page by page.
//!
//! The dispatcher runs it at intervals. It finds tasks without a hint: those that other nodes
//! wrote, and those that were due beyond the prefetch window when they were hinted at. Invariant:
//! the sweep alone suffices to find every due task.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::lane::LaneId;
use punctual_core::store::StoreError;
use punctual_core::time::signed_millis;
use tokio::time::Instant;

use super::dispatch_core::DispatchCore;

/// The maximum number of lanes that are read at once.
const PAGE_LANES: usize = 1_000;

/// When the sweep continues, and where.
pub(super) struct Sweep {
    /// The last lane that was read; none when it starts from the first.
    after: Option<LaneId>,
    next_at: Instant,
    /// The generation of partitions that the lanes were read for.
    generation: u64,
}

impl Sweep {
    /// A sweep that is due at once.
    pub fn new(generation: u64) -> Self {
        Self { after: None, next_at: Instant::now(), generation }
    }

    /// Has the next pass sweep from the first lane on.
    pub fn restart(&mut self) {
        (self.after, self.next_at) = (None, Instant::now());
    }

    /// If this node owns other partitions than before, forgets the lanes of those it no longer owns
    /// and sweeps for the lanes of the new ones.
    pub fn follow_ownership(&mut self, core: &mut DispatchCore) {
        let generation = core.deps.owned.generation();
        if generation != self.generation {
            self.generation = generation;
            let owned = Arc::clone(&core.deps.owned);
            core.lanes.retain(|lane| owned.concerns(lane));
            self.restart();
        }
    }

    /// Whether it is time to sweep.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next_at
    }

    /// How long until it is.
    pub fn until_due(&self) -> Duration {
        self.next_at.saturating_duration_since(Instant::now())
    }

    /// Reads all lanes, or the rest of a sweep that failed.
    pub async fn run(&mut self, core: &mut DispatchCore) -> Result<(), StoreError> {
        self.next_at = Instant::now() + core.config.sweep_interval;
        let (is_whole, mut found) = (self.after.is_none(), HashSet::new());
        loop {
            let now = core.now();
            let before = now.plus_millis(signed_millis(core.config.prefetch_window));
            let heads = core.deps.store.heads(self.after, before, PAGE_LANES).await?;
            for head in heads.iter().filter(|head| core.deps.owned.concerns(&head.lane.key)) {
                found.insert(head.lane.id);
                if !core.lanes.defer(&head.lane, head.due_at) {
                    core.lanes.note_swept(&head.lane, head.due_at, now);
                }
            }
            self.after = heads.last().filter(|_| heads.len() == PAGE_LANES).map(|head| head.lane.id);
            if self.after.is_none() {
                break;
            }
        }
        if is_whole {
            core.lanes.forget_unswept(&found);
        }
        Ok(())
    }
}
