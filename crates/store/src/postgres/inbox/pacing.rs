//! Which rows of the inbox are taken next, and when. Pure but for the clock.
//!
//! Announced transactions come first and alternate with the front of a backlog. A quiet inbox is
//! scanned every second for rows that were not announced. A busy inbox is scanned
//! continuously for a few seconds. Submitters then need not notify. Notifying transactions commit
//! one at a time.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::Instant;

use super::super::fault::Fault;
use super::batch::{InboxRows, TakenPart};

/// How often a quiet inbox is scanned from its front …
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// … and a watched one.
const WATCH_INTERVAL: Duration = Duration::from_millis(15);

/// A scan that takes longer walks over many dead entries. …
const QUICK_SCAN_MAX: Duration = Duration::from_millis(10);

/// … Such scans take at most 1/`SLOW_SCAN_SHARE` of the time.
const SLOW_SCAN_SHARE: u32 = 20;

/// How long a watch lasts. Submitters rely on it until a second before its end (`brief` in the
/// migration), so that the watch sees what they commit by then.
pub(super) const WATCH_DURATION: Duration = Duration::from_secs(3);

/// A watch that ends sooner than this is renewed.
const WATCH_RENEWAL: Duration = Duration::from_secs(2);

/// An inbox is busy if rows were found this often within a second, …
const BUSY_FINDS_MIN: u32 = 30;

/// … or if this many announced transactions wait.
const BUSY_BACKLOG_MIN: usize = 30;

/// The pace of the inbox (see the module).
pub(super) struct InboxPacing {
    /// Announced transactions.
    announced: mpsc::Receiver<i64>,
    /// Transactions that may have more rows.
    left: VecDeque<i64>,
    /// When to scan the front; at once while rows are found there.
    front_at: Instant,
    was_front: bool,
    /// How often rows were found since an instant.
    finds: (Instant, u32),
    watched_until: Instant,
}

impl InboxPacing {
    /// Begins with the front: earlier announcements are missed.
    pub(super) fn new(announced: mpsc::Receiver<i64>) -> Self {
        let now = Instant::now();
        Self { announced, left: VecDeque::new(), front_at: now, was_front: false, finds: (now, 0), watched_until: now }
    }

    /// Waits for the next rows to take. Fails when the connection for announcements is lost.
    pub(super) async fn next(&mut self) -> Result<InboxRows<'static>, Fault> {
        if self.front_at <= Instant::now() && !self.was_front {
            return Ok(InboxRows::Front);
        }
        let transaction = match self.announced.try_recv() {
            Ok(transaction) => Some(transaction),
            Err(TryRecvError::Disconnected) => return Err(Fault::Silent),
            Err(TryRecvError::Empty) => self.left.pop_front(),
        };
        if let Some(transaction) = transaction {
            return Ok(InboxRows::Transaction(transaction));
        }
        tokio::select! {
            biased;
            transaction = self.announced.recv() => transaction.map(InboxRows::Transaction).ok_or(Fault::Silent),
            () = tokio::time::sleep_until(self.front_at) => Ok(InboxRows::Front),
        }
    }

    /// Records how much was taken, and how long that took.
    pub(super) fn taken(&mut self, which: InboxRows<'_>, found: TakenPart, took: Duration) {
        let now = Instant::now();
        self.was_front = which == InboxRows::Front;
        if found != TakenPart::Nothing {
            if now.duration_since(self.finds.0) > Duration::from_secs(1) {
                self.finds = (now, 0);
            }
            self.finds.1 += 1;
        }
        match (which, found) {
            (InboxRows::Transaction(transaction), TakenPart::Some) => self.left.push_back(transaction),
            (InboxRows::Front, TakenPart::Nothing) if took > QUICK_SCAN_MAX => {
                // Announcements are cheaper than such scans.
                self.finds = (now, 0);
                self.front_at =
                    now + if self.is_watching(now) { took * 2 } else { SWEEP_INTERVAL.max(took * SLOW_SCAN_SHARE) };
            }
            (InboxRows::Front, TakenPart::Nothing | TakenPart::All) => {
                self.front_at = now + if self.is_watching(now) { WATCH_INTERVAL } else { SWEEP_INTERVAL };
            }
            _ => {}
        }
    }

    /// Whether the inbox is busy and its watch ends soon.
    pub(super) fn wants_to_watch(&self) -> bool {
        let is_busy = self.finds.1 >= BUSY_FINDS_MIN || self.announced.len() >= BUSY_BACKLOG_MIN;
        is_busy && self.watched_until.saturating_duration_since(Instant::now()) < WATCH_RENEWAL
    }

    fn is_watching(&self, now: Instant) -> bool {
        now < self.watched_until
    }

    /// Begins a watch.
    pub(super) fn watches(&mut self) {
        let now = Instant::now();
        self.finds = (now, 0);
        self.watched_until = now + WATCH_DURATION;
        self.front_at = self.front_at.min(now + WATCH_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacing() -> (mpsc::Sender<i64>, InboxPacing) {
        let (announce, announced) = mpsc::channel(64);
        (announce, InboxPacing::new(announced))
    }

    #[tokio::test(start_paused = true)]
    async fn announcements_and_a_backlog_alternate() {
        let (announce, mut pacing) = pacing();
        for transaction in [7, 8] {
            announce.try_send(transaction).unwrap();
        }
        let mut order = Vec::new();
        for found in [
            TakenPart::Some,
            TakenPart::Some,
            TakenPart::Some,
            TakenPart::All,
            TakenPart::All,
            TakenPart::All,
            TakenPart::Nothing,
        ] {
            let which = pacing.next().await.unwrap();
            pacing.taken(which, found, Duration::ZERO);
            order.push(which);
        }
        let (front, seven, eight) = (InboxRows::Front, InboxRows::Transaction(7), InboxRows::Transaction(8));
        // The last scan of the front is a sweep later.
        assert_eq!(order, [front, seven, front, eight, front, seven, front]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_inbox_is_scanned_now_and_then() {
        let (_announce, mut pacing) = pacing();
        let begun = Instant::now();
        for _ in 0..3 {
            let which = pacing.next().await.unwrap();
            pacing.taken(which, TakenPart::Nothing, Duration::ZERO);
        }
        assert_eq!(begun.elapsed(), SWEEP_INTERVAL * 2);
        pacing.taken(InboxRows::Front, TakenPart::Nothing, SWEEP_INTERVAL);
        pacing.next().await.unwrap();
        assert_eq!(begun.elapsed(), SWEEP_INTERVAL * (2 + SLOW_SCAN_SHARE), "a slow scan");
        assert!(!pacing.wants_to_watch());
    }

    /// Scans for a time with the same result; returns the number of scans and of watches that
    /// began.
    async fn scan(pacing: &mut InboxPacing, time: Duration, found: TakenPart) -> (u32, u32) {
        let (begun, mut scans, mut watches) = (Instant::now(), 0, 0);
        while begun.elapsed() < time {
            let which = pacing.next().await.unwrap();
            pacing.taken(which, found, Duration::ZERO);
            scans += 1;
            if pacing.wants_to_watch() {
                pacing.watches();
                watches += 1;
            }
        }
        (scans, watches)
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_inbox_is_watched_for_as_long_as_it_is_busy() {
        let (announce, mut pacing) = pacing();
        for _ in 0..BUSY_FINDS_MIN {
            assert!(!pacing.wants_to_watch());
            pacing.taken(InboxRows::Transaction(7), TakenPart::All, Duration::ZERO);
        }
        assert!(pacing.wants_to_watch());
        pacing.watches();
        let (scans, watches) = scan(&mut pacing, Duration::from_secs(10), TakenPart::All).await;
        assert!((600..=700).contains(&scans) && (5..=11).contains(&watches), "{scans} scans, {watches} watches");
        let (scans, watches) = scan(&mut pacing, WATCH_DURATION, TakenPart::Nothing).await;
        assert!((60..=210).contains(&scans) && watches <= 1, "{scans} scans, {watches} watches");
        let (scans, watches) = scan(&mut pacing, Duration::from_secs(10), TakenPart::Nothing).await;
        assert!(scans < 150 && watches == 0, "{scans} scans, {watches} watches");
        for transaction in 0..BUSY_BACKLOG_MIN {
            assert!(!pacing.wants_to_watch());
            announce.try_send(i64::try_from(transaction).unwrap()).unwrap();
        }
        assert!(pacing.wants_to_watch(), "more is announced than taken");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_scan_ends_the_watch() {
        let (_announce, mut pacing) = pacing();
        for _ in 0..BUSY_FINDS_MIN {
            pacing.taken(InboxRows::Transaction(7), TakenPart::All, Duration::ZERO);
        }
        assert!(pacing.wants_to_watch());
        pacing.taken(InboxRows::Front, TakenPart::Nothing, QUICK_SCAN_MAX * 2);
        assert!(!pacing.wants_to_watch());
    }

    #[tokio::test]
    async fn a_connection_that_ended_is_noticed() {
        let (announce, mut pacing) = pacing();
        pacing.taken(InboxRows::Front, TakenPart::Nothing, Duration::ZERO);
        drop(announce);
        assert!(pacing.next().await.is_err());
    }
}
