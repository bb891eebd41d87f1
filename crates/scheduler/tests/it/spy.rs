//! A store that remembers what it was polled to claim.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::forward_store;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::store::{Claim, Claimed, Head, Store, StoreError};
use punctual_core::time::Timestamp;
use punctual_testkit::fixtures::{START, task};
use tokio::sync::Notify;

pub struct Spy {
    inner: Arc<dyn Store>,
    pub claims: Mutex<Vec<Claim>>,
    /// The answers of claims over this limit are held.
    hold_over: AtomicUsize,
    holds: Notify,
    released: Notify,
    /// So many further claims take nothing although something is due.
    in_vain: AtomicUsize,
    /// If there are any, these lanes are all there are, and a page of them takes [`PAGE_TIME`].
    made_up_lanes: AtomicI64,
    /// How many pages of heads were read.
    pub pages: AtomicUsize,
    /// The greatest lane behind which a page was read.
    pub farthest: AtomicI64,
    /// Whether reading a page fails.
    pub fails_pages: AtomicBool,
}

/// How long it takes to read a page of lanes that are made up.
pub const PAGE_TIME: Duration = Duration::from_millis(10);

impl Spy {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let hold_over = AtomicUsize::new(usize::MAX);
        Self {
            inner,
            claims: Mutex::default(),
            hold_over,
            holds: Notify::new(),
            released: Notify::new(),
            in_vain: AtomicUsize::new(0),
            made_up_lanes: AtomicI64::new(0),
            pages: AtomicUsize::new(0),
            farthest: AtomicI64::new(0),
            fails_pages: AtomicBool::new(false),
        }
    }

    /// So many further claims take nothing although something is due, as if another node had it in
    /// hand.
    pub fn claim_in_vain(&self, times: usize) {
        self.in_vain.store(times, Relaxed);
    }

    /// Has this many lanes with a due task, which nobody polls.
    pub fn make_up_lanes(&self, lanes: i64) {
        self.made_up_lanes.store(lanes, Relaxed);
    }

    /// From now on the answers of claims over this limit are held.
    pub fn hold_claims_over(&self, limit: usize) {
        self.hold_over.store(limit, Relaxed);
    }

    /// Returns once the answer of a claim is held.
    pub async fn holds_one(&self) {
        self.holds.notified().await;
    }

    /// Lets the answer go that is held, and holds no further one.
    pub fn let_go(&self) {
        self.hold_over.store(usize::MAX, Relaxed);
        self.released.notify_one();
    }
}

#[async_trait]
impl Store for Spy {
    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        self.claims.lock().unwrap().extend(claims.iter().cloned());
        if self.in_vain.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            let still_due = |claim: &Claim| claim.lanes.iter().map(|(lane, _)| (*lane, Some(START))).collect();
            return Ok(claims
                .iter()
                .map(|claim| Claimed { next_due: still_due(claim), ..Claimed::default() })
                .collect());
        }
        let is_held = claims.iter().any(|claim| claim.limit > self.hold_over.load(Relaxed));
        let answer = self.inner.claim(claims).await;
        if is_held {
            self.holds.notify_one();
            self.released.notified().await;
        }
        answer
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.pages.fetch_add(1, Relaxed);
        self.farthest.fetch_max(after.map_or(0, LaneId::number), Relaxed);
        if self.fails_pages.load(Relaxed) {
            return Err(StoreError::Unavailable("the spy fails".into()));
        }
        let lanes = self.made_up_lanes.load(Relaxed);
        if lanes == 0 {
            return self.inner.heads(after, before, limit).await;
        }
        tokio::time::sleep(PAGE_TIME).await;
        let first = after.map_or(0, |after| after.number() + 1);
        let head = |number: i64| Head {
            lane: Arc::new(Lane { id: LaneId::new(number), key: task().queue("unpolled").build().lane }),
            due_at: START,
        };
        Ok((first..lanes).take(limit).map(head).collect())
    }

    forward_store!(inner: insert, insert_all, start, apply, apply_as, extend, get, live, results, list, overdue, counts, live_counts, quarantined, check, close);
}
