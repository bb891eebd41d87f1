//! The signs of life of one connection, and how long it may go without.
//!
//! Fed by the socket (bytes) and by the service (requests); asked by the connection's timer.
//! Hyper's own limit runs from the end of the previous answer, which would make a patient
//! client's idle connection and a dripping header the same thing.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::ServerLimits;

/// The signs of life of one connection.
pub(super) struct Pulse(Mutex<Signs>);

struct Signs {
    /// Requests that the service works on.
    in_flight: usize,
    /// When a request ended or a byte went out last.
    quiet_since: Instant,
    /// When the head that is being read began.
    head_since: Option<Instant>,
    /// Bytes between requests are frames of the protocol, not the beginning of a head.
    multiplexed: bool,
}

/// What to do about a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Look again then.
    Fine(Instant),
    /// Ask it to close.
    Idle,
    /// Close it.
    Slow,
}

impl Pulse {
    /// A connection that was just made: its first head counts from now.
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Signs { in_flight: 0, quiet_since: now, head_since: Some(now), multiplexed: false }))
    }

    /// Bytes came in.
    pub(super) fn read(&self, now: Instant) {
        let mut signs = self.0.lock();
        if signs.in_flight == 0 && !signs.multiplexed {
            signs.head_since.get_or_insert(now);
        }
    }

    /// Bytes went out.
    pub(super) fn wrote(&self, now: Instant) {
        self.0.lock().quiet_since = now;
    }

    /// A request has arrived whole; dropping the guard ends it.
    pub(super) fn request(&self, multiplexed: bool) -> Request<'_> {
        let mut signs = self.0.lock();
        signs.in_flight += 1;
        signs.head_since = None;
        signs.multiplexed = multiplexed;
        Request(self)
    }

    /// How the connection is doing at `now`.
    pub(super) fn verdict(&self, limits: &ServerLimits, now: Instant) -> Verdict {
        let signs = self.0.lock();
        if signs.in_flight > 0 {
            // No limit can pass sooner than this from now.
            return Verdict::Fine(now + limits.header_read.min(limits.idle).max(Duration::from_millis(1)));
        }
        let (due, verdict) = match signs.head_since {
            Some(since) => (since + limits.header_read, Verdict::Slow),
            None => (signs.quiet_since + limits.idle, Verdict::Idle),
        };
        if now < due { Verdict::Fine(due) } else { verdict }
    }
}

/// A request under way.
pub(super) struct Request<'a>(&'a Pulse);

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let mut signs = self.0.0.lock();
        signs.in_flight -= 1;
        signs.quiet_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> ServerLimits {
        ServerLimits { header_read: SECOND * 10, idle: SECOND * 75, ..ServerLimits::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_head_counts_from_the_connection() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        pulse.read(start + SECOND * 9);
        assert_eq!(pulse.verdict(&limits(), start + SECOND * 9), Verdict::Fine(start + SECOND * 10));
        assert_eq!(pulse.verdict(&limits(), start + SECOND * 10), Verdict::Slow);
    }

    #[tokio::test(start_paused = true)]
    async fn between_requests_the_idle_limit_counts_until_a_byte_comes() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        drop(pulse.request(false));
        assert_eq!(pulse.verdict(&limits(), start + SECOND * 74), Verdict::Fine(start + SECOND * 75));
        assert_eq!(pulse.verdict(&limits(), start + SECOND * 75), Verdict::Idle);
        pulse.read(start + SECOND * 70);
        assert_eq!(pulse.verdict(&limits(), start + SECOND * 80), Verdict::Slow);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_and_a_draining_answer_are_not_idle() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        let request = pulse.request(false);
        let later = start + SECOND * 1_000;
        assert_eq!(pulse.verdict(&limits(), later), Verdict::Fine(later + SECOND * 10));
        drop(request);
        pulse.wrote(later);
        assert_eq!(pulse.verdict(&limits(), later + SECOND * 70), Verdict::Fine(later + SECOND * 75));
    }

    #[tokio::test(start_paused = true)]
    async fn frames_between_streams_are_no_head() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        drop(pulse.request(true));
        pulse.read(start + SECOND);
        assert_eq!(pulse.verdict(&limits(), start + SECOND * 20), Verdict::Fine(start + SECOND * 75));
    }
}
