//! The places for requests: how much the interface takes on at once.
//!
//! Who finds no place is told so at once, which is cheaper for both sides than to wait for a
//! time-out. New tasks can take only a part of the places, so that a flood of them does not
//! keep workers from telling what became of the old ones. A worker that waits in a long poll
//! does nothing meanwhile: it leaves its place among the working requests and takes one
//! among the waiting workers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{Method, Request};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;
use crate::problem::{Code, Problem};
use crate::state::ApiConfig;

/// What a body's size is counted in: memory need not be bounded to the byte.
const UNIT: usize = 1_024;

/// How many bodies of unknown length there is room for.
const GROWING: usize = 4;

/// The places of one node.
pub struct Places {
    requests: Arc<Semaphore>,
    submissions: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    room: usize,
    waiting: Arc<Semaphore>,
    waiting_workers: Gauge,
    body_bytes: usize,
    batch_body_bytes: usize,
}

impl Places {
    /// As many places as `config` says.
    pub fn new(config: &ApiConfig, metrics: &Metrics) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            requests: places(config.requests_in_flight),
            submissions: places((config.requests_in_flight * 3 / 4).max(1)),
            bodies: places(config.bodies_bytes.div_ceil(UNIT)),
            room: config.bodies_bytes.div_ceil(UNIT),
            waiting: places(config.waiting_workers),
            waiting_workers: metrics.waiting_workers.clone(),
            body_bytes: config.body_bytes,
            batch_body_bytes: config.batch_body_bytes,
        }
    }

    /// A place for `request`, and room for its body.
    pub fn take<B: HttpBody>(&self, request: &Request<B>) -> Result<Visit, Problem> {
        let full = |what: &str| Problem::new(Code::Overloaded, format!("too many {what} are under way")).retry_after(1);
        let one = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned();
        let submission =
            if is_submission(request) { Some(one(&self.submissions).map_err(|_| full("submissions"))?) } else { None };
        let place = one(&self.requests).map_err(|_| full("requests"))?;
        let units = u32::try_from(self.room_for(request)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bodies).try_acquire_many_owned(units).map_err(|_| full("large requests"))?;
        let held = Held { _place: place, _submission: submission, _room: room };
        Ok(Visit(Arc::new(Mutex::new(Stay { held: Some(held), wait: Duration::ZERO }))))
    }

    /// The room that the body takes: as much as is announced, but no more than its route will read. One that is larger
    /// than all the room takes it all, and one that grows as it comes takes a part.
    fn room_for<B: HttpBody>(&self, request: &Request<B>) -> usize {
        let most = match request.uri().path() {
            "/v1/tasks/batch" | "/v1/leases/settle" => self.batch_body_bytes,
            _ => self.body_bytes,
        };
        match request.body().size_hint().upper() {
            Some(bytes) => usize::try_from(bytes).unwrap_or(most).min(most).div_ceil(UNIT).min(self.room),
            None => most.div_ceil(UNIT).min(self.room / GROWING),
        }
    }

    /// Moves `visit` to the waiting workers for at most `wait`; dropping the guard ends the wait.
    pub fn wait(&self, visit: &Visit, wait: Duration) -> Result<Waiting, Problem> {
        let place = Arc::clone(&self.waiting)
            .try_acquire_owned()
            .map_err(|_| Problem::new(Code::Overloaded, "too many workers wait here already").retry_after(1))?;
        let mut stay = visit.0.lock();
        stay.held = None;
        stay.wait = wait;
        drop(stay);
        self.waiting_workers.inc();
        Ok(Waiting { _place: place, gauge: self.waiting_workers.clone() })
    }
}

/// A request's stay: it ends when the last clone is dropped. Handlers find it among the request's extensions.
#[derive(Clone)]
pub struct Visit(Arc<Mutex<Stay>>);

struct Stay {
    held: Option<Held>,
    wait: Duration,
}

/// What a working request takes up.
struct Held {
    _place: OwnedSemaphorePermit,
    _submission: Option<OwnedSemaphorePermit>,
    _room: OwnedSemaphorePermit,
}

impl Visit {
    /// How long the request may wait besides the time it works.
    pub fn wait(&self) -> Duration {
        self.0.lock().wait
    }
}

fn is_submission<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && matches!(request.uri().path(), "/v1/tasks" | "/v1/tasks/batch")
}

/// A worker that waits.
pub struct Waiting {
    _place: OwnedSemaphorePermit,
    gauge: Gauge,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use hyper::body::{Frame, SizeHint};
    use punctual_core::time::Timestamp;

    use super::*;

    const MIB: usize = 1 << 20;

    fn places(requests: usize, bodies_bytes: usize, waiting: usize) -> Places {
        let config = ApiConfig {
            requests_in_flight: requests,
            bodies_bytes,
            waiting_workers: waiting,
            body_bytes: MIB,
            batch_body_bytes: 64 * MIB,
            ..ApiConfig::default()
        };
        Places::new(&config, &Metrics::new(Timestamp::default()))
    }

    /// A body that only says how long it is.
    struct Announced(Option<u64>);

    impl HttpBody for Announced {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            Poll::Ready(None)
        }

        fn size_hint(&self) -> SizeHint {
            self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    fn request(method: Method, path: &str, length: Option<usize>) -> Request<Announced> {
        let body = Announced(length.map(|length| u64::try_from(length).unwrap()));
        Request::builder().method(method).uri(path).body(body).unwrap()
    }

    fn lease() -> Request<Announced> {
        request(Method::POST, "/v1/leases", Some(10))
    }

    #[test]
    fn over_the_bound_a_request_is_refused_until_one_ends() {
        let places = places(1, MIB, 1);
        let visit = places.take(&lease()).unwrap();
        let refused = places.take(&lease()).err().unwrap();
        assert_eq!(refused.code(), Code::Overloaded);
        drop(visit);
        assert!(places.take(&lease()).is_ok());
    }

    #[test]
    fn a_flood_of_submissions_leaves_places_to_the_rest() {
        let places = places(4, MIB, 1);
        let submit = || places.take(&request(Method::POST, "/v1/tasks", Some(10)));
        let batch = || places.take(&request(Method::POST, "/v1/tasks/batch", Some(10)));
        let flood = [submit(), submit(), batch()].map(Result::unwrap);
        assert!(submit().is_err() && batch().is_err());
        assert!(places.take(&lease()).is_ok());
        assert!(places.take(&request(Method::GET, "/v1/tasks", Some(0))).is_ok());
        drop(flood);
        assert!(submit().is_ok());
    }

    #[test]
    fn a_waiting_worker_leaves_its_place_to_others() {
        let places = places(1, MIB, 1);
        let visit = places.take(&lease()).unwrap();
        let waiting = places.wait(&visit, Duration::from_secs(20)).unwrap();
        assert_eq!(visit.wait(), Duration::from_secs(20));
        assert_eq!(places.waiting_workers.get(), 1);
        let other = places.take(&lease()).unwrap();
        assert!(places.wait(&other, Duration::from_secs(1)).is_err(), "the waiting are bounded too");
        drop(waiting);
        assert_eq!(places.waiting_workers.get(), 0);
        assert!(places.wait(&other, Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn bodies_share_a_bounded_room() {
        let places = places(100, 10 * MIB, 1);
        let (post, batch) = (Method::POST, "/v1/tasks/batch");
        let held = places.take(&request(post.clone(), batch, Some(9 * MIB))).unwrap();
        assert!(places.take(&request(post.clone(), batch, Some(2 * MIB))).is_err(), "9 and 2 MiB are too much");
        assert!(places.take(&request(post.clone(), batch, None)).is_err(), "a quarter of the room is not left");
        assert!(places.take(&request(Method::GET, "/v1/tasks", Some(0))).is_ok(), "a read has no body");
        // A route that takes a MiB needs room for no more, whatever is announced or not.
        for length in [None, Some(9 * MIB)] {
            assert!(places.take(&request(post.clone(), "/v1/tasks", length)).is_ok(), "{length:?}");
        }
        drop(held);
        let huge = places.take(&request(post.clone(), batch, Some(40 * MIB))).unwrap();
        assert!(places.take(&lease()).is_err(), "it takes all the room");
        drop(huge);
        assert!(places.take(&request(post, batch, Some(2 * MIB))).is_ok());
    }
}
