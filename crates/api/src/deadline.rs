//! The time a request may take: its body must arrive at a minimum pace, and the answer must be
//! ready within the deadline once the body is there.
//!
//! Called by [`crate::middleware`] for every request. The two limits are separate, so that a large
//! batch over a slow line is not cut off by the limit that is meant for a stuck handler.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// How long a body may take before its pace matters.
const GRACE: Duration = Duration::from_secs(10);
/// The slowest pace, in bytes a second.
const PACE_MIN: u64 = 16 * 1024;

/// How far a request's body has arrived. Cheap to clone.
#[derive(Clone)]
pub struct BodyArrival(Arc<BodyProgress>);

struct BodyProgress {
    last: Mutex<Instant>,
    late: AtomicBool,
    whole: AtomicBool,
}

impl BodyArrival {
    /// Watches `body`.
    pub fn watch(body: Body, now: Instant) -> (Self, Body) {
        let whole = AtomicBool::new(body.is_end_stream());
        let arrival = Self(Arc::new(BodyProgress { last: Mutex::new(now), late: AtomicBool::new(false), whole }));
        if body.is_end_stream() {
            return (arrival, body);
        }
        let paced = PacedBody { body, arrival: arrival.clone(), began: now, received: 0, timer: None };
        (arrival, Body::new(paced))
    }

    /// Whether all of the body was read.
    pub fn is_whole(&self) -> bool {
        self.0.whole.load(Ordering::Relaxed)
    }

    /// Whether the body came too slowly and was cut off.
    pub fn is_late(&self) -> bool {
        self.0.late.load(Ordering::Relaxed)
    }

    /// Runs `work` until `deadline` has passed since the last byte of the body; none if it did not
    /// finish by then. `more` is the time on top of that, as a long poll has; it may change while
    /// the work runs.
    pub async fn within<T>(
        &self,
        deadline: Duration,
        more: impl Fn() -> Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let due = *self.0.last.lock() + deadline + more();
            if let Ok(done) = tokio::time::timeout_at(due, work.as_mut()).await {
                return Some(done);
            }
            if Instant::now() >= *self.0.last.lock() + deadline + more() {
                return None;
            }
        }
    }
}

/// A body that fails when it comes too slowly.
struct PacedBody {
    body: Body,
    arrival: BodyArrival,
    began: Instant,
    received: u64,
    /// Set only while the handler waits for the body.
    timer: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    fn due(&self) -> Instant {
        self.began + GRACE + Duration::from_millis(self.received.saturating_mul(1_000) / PACE_MIN)
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            if frame.is_none() || self.body.is_end_stream() {
                self.arrival.0.whole.store(true, Ordering::Relaxed);
            }
            if let Some(Ok(frame)) = &frame {
                self.received += frame.data_ref().map_or(0, |data| data.len() as u64);
                self.timer = None;
                *self.arrival.0.last.lock() = Instant::now();
            }
            return Poll::Ready(frame);
        }
        let due = self.due();
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.arrival.0.late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new("the body came too slowly"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::testing::body;

    /// A body fed by hand.
    fn fed() -> (mpsc::UnboundedSender<Bytes>, BodyArrival, Body) {
        let (feed, mut fed) = mpsc::unbounded_channel();
        let (arrival, body) = BodyArrival::watch(Body::new(body(None, move |cx| fed.poll_recv(cx))), Instant::now());
        (feed, arrival, body)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_cut_off() {
        let (feed, arrival, body) = fed();
        feed.send(Bytes::from_static(b"{")).unwrap();
        let began = Instant::now();
        assert!(body.collect().await.is_err());
        assert!(arrival.is_late());
        assert!(began.elapsed() < GRACE + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_gets_the_time_it_needs() {
        let (feed, arrival, body) = fed();
        let sending = tokio::spawn(async move {
            for _ in 0..60 {
                feed.send(Bytes::from(vec![b'x'; 20 * 1024])).unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let read = arrival.within(Duration::from_secs(30), || Duration::ZERO, body.collect()).await;
        assert_eq!(read.unwrap().unwrap().to_bytes().len(), 60 * 20 * 1024);
        sending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_stuck_handler_is_ended_at_its_deadline() {
        let (_, arrival, _) = fed();
        let (second, began) = (Duration::from_secs(1), Instant::now());
        assert!(arrival.within(second * 30, || Duration::ZERO, std::future::pending::<()>()).await.is_none());
        assert_eq!(began.elapsed().as_secs(), 30);
        let (arrival, _) = BodyArrival::watch(Body::empty(), Instant::now());
        assert!(arrival.within(second * 30, || second * 60, tokio::time::sleep(second * 60)).await.is_some());
    }
}
