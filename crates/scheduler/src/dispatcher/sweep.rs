//! The sweep: reads the heads of all lanes from the store, a page in each pass.
//!
//! The dispatcher runs it at intervals. It finds tasks without a hint: those that other nodes
//! wrote, and those that were due beyond the window when they were hinted at. Invariant: the sweep
//! alone suffices to find every due task.
//!
//! Most lanes of a large sweep may be of no use: nobody polls their queues. So a regular sweep of
//! many pages pauses after each, and works for a twentieth of the time, however many lanes there
//! are. The window covers the time until the next sweep has read a lane again.

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

/// A regular sweep pauses after a page for this many times as long as the page took.
const PAUSE_FACTOR: u32 = 19;

/// A page that took longer has waited for the store: that is no work of the sweep.
const PAGE_TIME_MAX: Duration = Duration::from_millis(500);

/// When the sweep continues, and where.
pub(super) struct Sweep {
    /// The last lane that was read; none when it starts from the first.
    after: Option<LaneId>,
    next_at: Instant,
    /// Present if it was asked for, and so does not pause.
    urgency: Option<Urgency>,
    /// When the sweep under way began.
    began_at: Instant,
    /// How long the last whole sweep took, with its pauses.
    last_duration: Duration,
    /// The generation of partitions that the lanes were read for.
    generation: u64,
}

/// How far a sweep goes that was asked for: once round, from where it was then.
#[derive(Default)]
struct Urgency {
    /// The last lane to read; none for the last lane of all.
    until: Option<LaneId>,
    /// The same for the next round, if it was asked for in this one.
    again_until: Option<LaneId>,
    /// How many rounds have ended since the first request.
    rounds: u32,
}

impl Sweep {
    /// A sweep that is due at once.
    pub fn new(generation: u64) -> Self {
        let (now, urgency) = (Instant::now(), Some(Urgency::default()));
        Self { after: None, next_at: now, urgency, began_at: now, last_duration: Duration::ZERO, generation }
    }

    /// Has the next passes read every lane once, without pauses. It goes on from where it is, so
    /// that it reaches the last lanes however often it is asked for.
    pub fn request(&mut self) {
        let urgency = self.urgency.get_or_insert_default();
        // Those from here to the end are read in this round, those before in the next.
        (urgency.until, urgency.again_until) = (None, self.after);
        self.next_at = Instant::now();
    }

    /// If this node owns other partitions than before, forgets the lanes of those it no longer owns
    /// and sweeps for the lanes of the new ones.
    pub fn follow_ownership(&mut self, core: &mut DispatchCore) {
        let generation = core.deps.owned.generation();
        if generation != self.generation {
            self.generation = generation;
            let owned = Arc::clone(&core.deps.owned);
            core.lanes.retain(|lane| owned.concerns(lane));
            self.request();
        }
    }

    /// Whether it is time to read a page.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next_at
    }

    /// Whether it was asked for and has another page to read now.
    pub fn has_more(&self) -> bool {
        self.urgency.is_some() && self.is_due()
    }

    /// Whether a sweep that was asked for has not read every lane yet: there may be due tasks that
    /// nobody knows of. If it is asked for again and again, nobody waits longer than two rounds.
    pub fn is_incomplete(&self) -> bool {
        self.urgency.as_ref().is_some_and(|urgency| urgency.rounds < 2)
    }

    /// Whether the next page is the first.
    pub fn is_at_start(&self) -> bool {
        self.after.is_none()
    }

    /// How long until it is time.
    pub fn until_due(&self) -> Duration {
        self.next_at.saturating_duration_since(Instant::now())
    }

    /// Reads a page of lanes. One that fails is read again.
    pub async fn run(&mut self, core: &mut DispatchCore) -> Result<(), StoreError> {
        let begun = Instant::now();
        self.next_at = begun + core.config.sweep_interval;
        if self.is_at_start() {
            self.began_at = begun;
        }
        let window = signed_millis(self.window(core.config.prefetch_window));
        core.lanes.set_window(window);
        let now = core.now();
        let heads = core.deps.store.heads(self.after, now.plus_millis(window), PAGE_LANES).await?;
        let mut found = HashSet::new();
        for head in heads.iter().filter(|head| core.deps.owned.concerns(&head.lane.key)) {
            found.insert(head.lane.id);
            if !core.lanes.defer(&head.lane, head.due_at) {
                core.lanes.note_swept(&head.lane, head.due_at, now);
            }
        }
        let last = heads.last().filter(|_| heads.len() == PAGE_LANES).map(|head| head.lane.id);
        core.lanes.forget_unswept(self.after, last, &found);
        let is_only_page = self.is_at_start() && last.is_none();
        let pauses = self.urgency.is_none() && !is_only_page;
        let pause = if pauses { begun.elapsed().min(PAGE_TIME_MAX) * PAUSE_FACTOR } else { Duration::ZERO };
        self.next_at = Instant::now() + pause;
        self.after = last;
        self.urgency = self.urgency.take().and_then(|urgency| urgency.after_page(last));
        if last.is_none() {
            self.last_duration = self.began_at.elapsed();
            if self.urgency.is_none() {
                self.next_at = self.next_at.max(self.began_at + core.config.sweep_interval);
            }
        }
        Ok(())
    }

    /// How far ahead lanes are kept in memory: until every lane was read again, with time to spare.
    fn window(&self, configured: Duration) -> Duration {
        configured.max(self.last_duration.max(self.began_at.elapsed()) * 2)
    }
}

impl Urgency {
    /// What is left after a page up to `last`, or up to the last lane of all; none if it is done.
    fn after_page(self, last: Option<LaneId>) -> Option<Self> {
        let Self { until, again_until, rounds } = self;
        match (last, again_until) {
            (None, None) => None,
            (None, again) => Some(Self { until: again, again_until: None, rounds: rounds + 1 }),
            (Some(last), None) if until.is_some_and(|until| last >= until) => None,
            (Some(_), again_until) => Some(Self { until, again_until, rounds }),
        }
    }
}
