//! The activity of one connection, and how long it may go without.
//!
//! The socket reports bytes, the service reports requests, and the connection's timer asks for a
//! check. Hyper's own limit counts from the end of the previous answer, so it cannot distinguish
//! an idle connection from a head that comes byte by byte.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ServerLimits;

/// The activity of one connection.
pub(super) struct ConnectionActivity(Mutex<ActivityState>);

struct ActivityState {
    /// Requests that the service handles now.
    in_flight: usize,
    /// When the last request ended or the last byte went out.
    quiet_since: Instant,
    /// When the first byte of an unfinished head came.
    head_since: Option<Instant>,
    /// HTTP/2: bytes between requests are frames, not the beginning of a head.
    multiplexed: bool,
    /// Answers of which the peer has not read everything.
    unread: usize,
    /// Since when it reads too little of them: each byte that it reads moves this on.
    unread_since: Instant,
}

/// The slowest pace at which a peer may read its answers, in bytes a second.
const READ_PACE_MIN: u64 = 16 * 1024;

/// The result of a check of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActivityCheck {
    /// No limit has passed; check again then.
    Active(Instant),
    /// It is idle: close it gracefully.
    Idle,
    /// A head takes too long: close it at once.
    Slow,
    /// The peer does not read its answers: drop it with all that was sent.
    Unread,
}

impl ConnectionActivity {
    /// The activity of a new connection; the time for its first head begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(ActivityState {
            in_flight: 0,
            quiet_since: now,
            head_since: Some(now),
            multiplexed: false,
            unread: 0,
            unread_since: now,
        }))
    }

    /// Bytes came in.
    pub(super) fn read(&self, now: Instant) {
        let mut state = self.0.lock();
        if state.in_flight == 0 && !state.multiplexed {
            state.head_since.get_or_insert(now);
        }
    }

    /// Bytes went out.
    pub(super) fn wrote(&self, now: Instant) {
        self.0.lock().quiet_since = now;
    }

    /// The head of a request is complete; dropping the guard ends the request.
    pub(super) fn begin_request(&self, multiplexed: bool) -> ActiveRequest<'_> {
        let mut state = self.0.lock();
        state.in_flight += 1;
        state.head_since = None;
        state.multiplexed = multiplexed;
        ActiveRequest(self)
    }

    /// An answer is ready.
    pub(super) fn begin_answer(&self, now: Instant) {
        let mut state = self.0.lock();
        if state.unread == 0 {
            state.unread_since = now;
        }
        state.unread += 1;
    }

    /// This many bytes of an answer have left.
    pub(super) fn answer_left(&self, bytes: usize, now: Instant) {
        let pace = Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / READ_PACE_MIN);
        let mut state = self.0.lock();
        state.unread_since = now.min(state.unread_since + pace);
    }

    /// All of an answer has left, or it was given up.
    pub(super) fn end_answer(&self) {
        self.0.lock().unread -= 1;
    }

    /// Whether the peer has yet to read an answer.
    pub(super) fn has_unread(&self) -> bool {
        self.0.lock().unread > 0
    }

    /// Checks the limits at `now`.
    pub(super) fn check(&self, limits: &ServerLimits, now: Instant) -> ActivityCheck {
        let state = self.0.lock();
        // What begins after this check can pass no limit earlier than this.
        let next = now + limits.header_read.min(limits.idle).min(limits.unread).max(Duration::from_millis(1));
        let (due, overdue) = match state.head_since {
            _ if state.unread > 0 => (state.unread_since + limits.unread, ActivityCheck::Unread),
            _ if state.in_flight > 0 => return ActivityCheck::Active(next),
            Some(since) => (since + limits.header_read, ActivityCheck::Slow),
            None => (state.quiet_since + limits.idle, ActivityCheck::Idle),
        };
        if now < due { ActivityCheck::Active(due.min(next)) } else { overdue }
    }
}

/// A request under way.
pub(super) struct ActiveRequest<'a>(&'a ConnectionActivity);

impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.in_flight -= 1;
        state.quiet_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> ServerLimits {
        ServerLimits { header_read: SECOND * 10, idle: SECOND * 75, unread: SECOND * 10, ..ServerLimits::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_head_counts_from_the_connection() {
        let start = Instant::now();
        let activity = ConnectionActivity::new(start);
        activity.read(start + SECOND * 9);
        assert_eq!(activity.check(&limits(), start + SECOND * 9), ActivityCheck::Active(start + SECOND * 10));
        assert_eq!(activity.check(&limits(), start + SECOND * 10), ActivityCheck::Slow);
    }

    #[tokio::test(start_paused = true)]
    async fn between_requests_the_idle_limit_ends_with_a_byte() {
        let start = Instant::now();
        let activity = ConnectionActivity::new(start);
        drop(activity.begin_request(false));
        assert_eq!(activity.check(&limits(), start + SECOND * 74), ActivityCheck::Active(start + SECOND * 75));
        assert_eq!(activity.check(&limits(), start + SECOND * 75), ActivityCheck::Idle);
        activity.read(start + SECOND * 70);
        assert_eq!(activity.check(&limits(), start + SECOND * 80), ActivityCheck::Slow);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_or_an_answer_under_way_is_not_idle() {
        let start = Instant::now();
        let activity = ConnectionActivity::new(start);
        let request = activity.begin_request(false);
        let later = start + SECOND * 1_000;
        assert_eq!(activity.check(&limits(), later), ActivityCheck::Active(later + SECOND * 10));
        drop(request);
        activity.wrote(later);
        assert_eq!(activity.check(&limits(), later + SECOND * 70), ActivityCheck::Active(later + SECOND * 75));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_must_read_at_the_slowest_pace() {
        let start = Instant::now();
        let pace = usize::try_from(READ_PACE_MIN).unwrap();
        let activity = ConnectionActivity::new(start);
        drop(activity.begin_request(true));
        activity.begin_answer(start);
        activity.begin_answer(start + SECOND * 5);
        assert_eq!(activity.check(&limits(), start + SECOND * 9), ActivityCheck::Active(start + SECOND * 10));
        assert_eq!(activity.check(&limits(), start + SECOND * 10), ActivityCheck::Unread);
        activity.answer_left(3 * pace, start + SECOND * 10);
        assert_eq!(activity.check(&limits(), start + SECOND * 12), ActivityCheck::Active(start + SECOND * 13));
        // What is read at once is no credit for later.
        activity.answer_left(1_000 * pace, start + SECOND * 12);
        assert_eq!(activity.check(&limits(), start + SECOND * 22), ActivityCheck::Unread);
        activity.end_answer();
        activity.end_answer();
        assert!(matches!(activity.check(&limits(), start + SECOND * 30), ActivityCheck::Active(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn http2_frames_between_requests_are_no_head() {
        let start = Instant::now();
        let activity = ConnectionActivity::new(start);
        drop(activity.begin_request(true));
        activity.read(start + SECOND);
        assert!(matches!(activity.check(&limits(), start + SECOND * 20), ActivityCheck::Active(_)));
    }
}
