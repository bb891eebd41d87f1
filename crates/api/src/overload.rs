//! The places for requests: how much the interface takes on at once.
//!
//! Who finds no place is told so at once, which is cheaper for both sides than to wait for a
//! time-out. A worker that waits in a long poll does nothing meanwhile: it leaves its place
//! among the working requests and takes one among the waiting workers.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use axum::http::header::CONTENT_LENGTH;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;
use crate::problem::{Code, Problem};
use crate::state::ApiConfig;

/// The places of one node.
pub struct Places {
    requests: Arc<Semaphore>,
    large: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    waiting_workers: Gauge,
    large_from: u64,
}

impl Places {
    /// As many places as `config` says.
    pub fn new(config: &ApiConfig, metrics: &Metrics) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            requests: places(config.requests_in_flight),
            large: places(config.large_bodies),
            waiting: places(config.waiting_workers),
            waiting_workers: metrics.waiting_workers.clone(),
            large_from: config.body_bytes as u64,
        }
    }

    /// A place for `request`, and another for its body if that may be a large one.
    pub fn take<B>(&self, request: &Request<B>) -> Result<Visit, Problem> {
        let full = |what: &str| Problem::new(Code::Overloaded, format!("too many {what} are under way")).retry_after(1);
        let large = if self.may_be_large(request) {
            Some(Arc::clone(&self.large).try_acquire_owned().map_err(|_| full("large requests"))?)
        } else {
            None
        };
        let place = Arc::clone(&self.requests).try_acquire_owned().map_err(|_| full("requests"))?;
        Ok(Visit(Arc::new(Mutex::new(Stay { place: Some(place), _large: large, wait: Duration::ZERO }))))
    }

    /// A body of unknown length is bounded by its route; only the batch routes let it grow large.
    fn may_be_large<B>(&self, request: &Request<B>) -> bool {
        match request.headers().get(CONTENT_LENGTH) {
            Some(length) => length
                .to_str()
                .ok()
                .and_then(|text| text.parse().ok())
                .is_none_or(|length: u64| length > self.large_from),
            None => matches!(request.uri().path(), "/v1/tasks/batch" | "/v1/leases/settle"),
        }
    }

    /// Moves `visit` to the waiting workers for at most `wait`; dropping the guard ends the wait.
    pub fn wait(&self, visit: &Visit, wait: Duration) -> Result<Waiting, Problem> {
        let place = Arc::clone(&self.waiting)
            .try_acquire_owned()
            .map_err(|_| Problem::new(Code::Overloaded, "too many workers wait here already").retry_after(1))?;
        let mut stay = visit.0.lock();
        stay.place = None;
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
    place: Option<OwnedSemaphorePermit>,
    _large: Option<OwnedSemaphorePermit>,
    wait: Duration,
}

impl Visit {
    /// How long the request may wait besides the time it works.
    pub fn wait(&self) -> Duration {
        self.0.lock().wait
    }
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
    use punctual_core::time::Timestamp;

    use super::*;

    fn places(requests: usize, large: usize, waiting: usize) -> Places {
        let config = ApiConfig {
            requests_in_flight: requests,
            large_bodies: large,
            waiting_workers: waiting,
            ..ApiConfig::default()
        };
        Places::new(&config, &Metrics::new(Timestamp::default()))
    }

    fn request(path: &str, length: Option<&str>) -> Request<()> {
        let request = Request::builder().uri(path);
        match length {
            Some(length) => request.header(CONTENT_LENGTH, length),
            None => request,
        }
        .body(())
        .unwrap()
    }

    #[test]
    fn over_the_bound_a_request_is_refused_until_one_ends() {
        let places = places(1, 1, 1);
        let visit = places.take(&request("/v1/tasks", Some("10"))).unwrap();
        let refused = places.take(&request("/v1/tasks", Some("10"))).err().unwrap();
        assert_eq!(refused.code(), Code::Overloaded);
        drop(visit);
        assert!(places.take(&request("/v1/tasks", Some("10"))).is_ok());
    }

    #[test]
    fn a_waiting_worker_leaves_its_place_to_others() {
        let places = places(1, 1, 1);
        let visit = places.take(&request("/v1/leases", Some("10"))).unwrap();
        let waiting = places.wait(&visit, Duration::from_secs(20)).unwrap();
        assert_eq!(visit.wait(), Duration::from_secs(20));
        assert_eq!(places.waiting_workers.get(), 1);
        let other = places.take(&request("/v1/leases", Some("10"))).unwrap();
        assert!(places.wait(&other, Duration::from_secs(1)).is_err(), "the waiting are bounded too");
        drop(waiting);
        assert_eq!(places.waiting_workers.get(), 0);
        assert!(places.wait(&other, Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn large_bodies_are_counted_apart() {
        let places = places(10, 1, 1);
        let _large = places.take(&request("/v1/tasks/batch", Some("5000000"))).unwrap();
        for (path, length) in
            [("/v1/tasks/batch", Some("5000000")), ("/v1/tasks/batch", None), ("/v1/tasks", Some("x"))]
        {
            assert!(places.take(&request(path, length)).is_err(), "{path} {length:?}");
        }
        assert!(places.take(&request("/v1/tasks/batch", Some("5000"))).is_ok());
        assert!(places.take(&request("/v1/tasks", None)).is_ok());
    }
}
