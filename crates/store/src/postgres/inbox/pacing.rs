//! What is looked for next in the inbox, and when. Pure but for the clock.
//!
//! Transactions that were told of come first, and take pacing with the front of a backlog. An
//! inbox that is quiet is looked at every second, for what nobody told of. One that is busy is
//! watched: looked at all the time for a few seconds, in which nobody has to tell, since
//! whoever tells has to commit alone.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::time::Instant;

use super::super::fault::Fault;
use super::batch::{InboxRows, TakenPart};

/// How often a quiet inbox is looked through from its front …
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// … and one that is watched.
const WATCH_INTERVAL: Duration = Duration::from_millis(15);

/// A look that takes longer walks over much that is dead and not removed yet. …
const QUICK_SCAN_MAX: Duration = Duration::from_millis(10);

/// … Such looks have one part in so many of the time.
const SLOW_SCAN_SHARE: u32 = 20;

/// How long a watch lasts. Callers go by it until a second before its end (`brief` in the
/// migration), so that what they commit by then is seen.
pub(super) const WATCH_DURATION: Duration = Duration::from_secs(3);

/// A watch of which less is left is prolonged.
const WATCH_RENEWAL: Duration = Duration::from_secs(2);

/// An inbox is busy in which something was found so often within a second, …
const BUSY_FINDS_MIN: u32 = 30;

/// … or of which so much was told and not looked for yet.
const BUSY_BACKLOG_MIN: usize = 30;

/// See the module.
pub(super) struct InboxPacing {
    /// Transactions that were told of.
    told: mpsc::Receiver<i64>,
    /// Those of which there may be more.
    left: VecDeque<i64>,
    /// When to look at the front; at once, as long as something is found there.
    front_at: Instant,
    was_front: bool,
    /// How often something was found since then.
    finds: (Instant, u32),
    watched_until: Instant,
}

impl InboxPacing {
    /// Begins with the front: what was told of before is missed.
    pub(super) fn new(told: mpsc::Receiver<i64>) -> Self {
        let now = Instant::now();
        Self { told, left: VecDeque::new(), front_at: now, was_front: false, finds: (now, 0), watched_until: now }
    }

    /// Waits for the next turn. Fails when the connection is lost that would tell of it.
    pub(super) async fn next(&mut self) -> Result<InboxRows, Fault> {
        if self.front_at <= Instant::now() && !self.was_front {
            return Ok(InboxRows::Front);
        }
        let transaction = match self.told.try_recv() {
            Ok(transaction) => Some(transaction),
            Err(TryRecvError::Disconnected) => return Err(Fault::Silent),
            Err(TryRecvError::Empty) => self.left.pop_front(),
        };
        if let Some(transaction) = transaction {
            return Ok(InboxRows::Transaction(transaction));
        }
        tokio::select! {
            biased;
            transaction = self.told.recv() => transaction.map(InboxRows::Transaction).ok_or(Fault::Silent),
            () = tokio::time::sleep_until(self.front_at) => Ok(InboxRows::Front),
        }
    }

    /// That much was found, within so long.
    pub(super) fn taken(&mut self, which: InboxRows, found: TakenPart, took: Duration) {
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
                // Better be told than look.
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

    /// Whether the inbox is busy, and not watched for long enough.
    pub(super) fn wants_to_watch(&self) -> bool {
        let is_busy = self.finds.1 >= BUSY_FINDS_MIN || self.told.len() >= BUSY_BACKLOG_MIN;
        is_busy && self.watched_until.saturating_duration_since(Instant::now()) < WATCH_RENEWAL
    }

    fn is_watching(&self, now: Instant) -> bool {
        now < self.watched_until
    }

    /// From now on it is watched.
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
        let (tell, told) = mpsc::channel(64);
        (tell, InboxPacing::new(told))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_and_a_backlog_take_turns() {
        let (tell, mut pacing) = pacing();
        for transaction in [7, 8] {
            tell.try_send(transaction).unwrap();
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
        // The last look at the front is a sweep later.
        assert_eq!(order, [front, seven, front, eight, front, seven, front]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_inbox_is_looked_at_now_and_then() {
        let (_tell, mut pacing) = pacing();
        let begun = Instant::now();
        for _ in 0..3 {
            let which = pacing.next().await.unwrap();
            pacing.taken(which, TakenPart::Nothing, Duration::ZERO);
        }
        assert_eq!(begun.elapsed(), SWEEP_INTERVAL * 2);
        pacing.taken(InboxRows::Front, TakenPart::Nothing, SWEEP_INTERVAL);
        pacing.next().await.unwrap();
        assert_eq!(begun.elapsed(), SWEEP_INTERVAL * (2 + SLOW_SCAN_SHARE), "a look that takes long");
        assert!(!pacing.wants_to_watch());
    }

    /// Looks for so long, finds that each time, and gives how often it looked and how often a watch
    /// began.
    async fn look(pacing: &mut InboxPacing, time: Duration, found: TakenPart) -> (u32, u32) {
        let (begun, mut looks, mut watches) = (Instant::now(), 0, 0);
        while begun.elapsed() < time {
            let which = pacing.next().await.unwrap();
            pacing.taken(which, found, Duration::ZERO);
            looks += 1;
            if pacing.wants_to_watch() {
                pacing.watches();
                watches += 1;
            }
        }
        (looks, watches)
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_inbox_is_watched_for_as_long_as_it_is_busy() {
        let (tell, mut pacing) = pacing();
        for _ in 0..BUSY_FINDS_MIN {
            assert!(!pacing.wants_to_watch());
            pacing.taken(InboxRows::Transaction(7), TakenPart::All, Duration::ZERO);
        }
        assert!(pacing.wants_to_watch());
        pacing.watches();
        let (looks, watches) = look(&mut pacing, Duration::from_secs(10), TakenPart::All).await;
        assert!((600..=700).contains(&looks) && (5..=11).contains(&watches), "{looks} looks, {watches} watches");
        let (looks, watches) = look(&mut pacing, WATCH_DURATION, TakenPart::Nothing).await;
        assert!((60..=210).contains(&looks) && watches <= 1, "{looks} looks, {watches} watches");
        let (looks, watches) = look(&mut pacing, Duration::from_secs(10), TakenPart::Nothing).await;
        assert!(looks < 150 && watches == 0, "{looks} looks, {watches} watches");
        for transaction in 0..BUSY_BACKLOG_MIN {
            assert!(!pacing.wants_to_watch());
            tell.try_send(i64::try_from(transaction).unwrap()).unwrap();
        }
        assert!(pacing.wants_to_watch(), "more is told than looked for");
    }

    #[tokio::test(start_paused = true)]
    async fn where_looking_takes_long_nobody_watches() {
        let (_tell, mut pacing) = pacing();
        for _ in 0..BUSY_FINDS_MIN {
            pacing.taken(InboxRows::Transaction(7), TakenPart::All, Duration::ZERO);
        }
        assert!(pacing.wants_to_watch());
        pacing.taken(InboxRows::Front, TakenPart::Nothing, QUICK_SCAN_MAX * 2);
        assert!(!pacing.wants_to_watch());
    }

    #[tokio::test]
    async fn a_connection_that_ended_is_noticed() {
        let (tell, mut pacing) = pacing();
        pacing.taken(InboxRows::Front, TakenPart::Nothing, Duration::ZERO);
        drop(tell);
        assert!(pacing.next().await.is_err());
    }
}
