//! The places for requests, and the room for their bodies: how much the interface takes on at once.
//!
//! Whoever finds neither stands in line for a moment, its body unread, and is refused when the
//! moment has passed. The line is what keeps a flood cheap: to refuse costs more than to let
//! wait, and a caller that is refused at once and does not wait as it was told comes back at
//! once. New tasks have places and room of their own, so that a flood of them does not keep
//! workers from telling what became of the old ones. A worker that waits in a long poll does
//! nothing meanwhile: it leaves its place among the working requests and takes one among the
//! waiting workers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{Method, Request};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::problem::{Code, Problem};
use crate::state::ApiConfig;

/// How long a request stands in line that is alone in it, and how long at the most (up to a quarter less, by chance):
/// many clients give up after five seconds, and should learn before that when to come back.
const MOMENT: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(4);

/// How much longer it stands for each one that is in line already: so about 500 are refused a second, as long as the
/// wait is not the longest, however many come back as soon as they are refused, and that bounds what they cost.
const LONGER: Duration = Duration::from_millis(2);

/// How many can stand in line: as many as there are connections by default, and some with many requests on one.
const LINE: usize = 16_384;

/// What a body's size is counted in: memory need not be bounded to the byte.
const UNIT: usize = 1_024;

/// A body up to this size needs no room besides its place, so that single tasks pass by the batches in line.
const SMALL: usize = 16 * UNIT;

/// Bytes of batches that are taken apart and written at once. A batch is many times larger taken apart than as text,
/// and what lies about until it is written has left the processor's caches: beyond some milliseconds' work for the
/// writer, more at once is slower.
const IN_PARTS: usize = 6 * 1024 * UNIT;

/// The part of the room that one body can take, however large it is or may become: whoever sends one slowly must not
/// keep everybody else's out.
const PART: usize = 4;

/// The places of one node.
pub struct Places {
    submissions: Kind,
    others: Kind,
    line: Semaphore,
    in_parts: Semaphore,
    waiting: Arc<Semaphore>,
    waiting_workers: Gauge,
    body_bytes: usize,
    batch_body_bytes: usize,
}

/// What the requests of one kind share.
struct Kind {
    name: &'static str,
    places: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    /// All the room for bodies, in units.
    room: usize,
}

impl Places {
    /// As many places as `config` says.
    pub fn new(config: &ApiConfig, metrics: &Metrics) -> Self {
        let kind = |name, places: usize, bytes: usize| {
            let (places, room) = (places.max(1), bytes.div_ceil(UNIT).max(1));
            Kind { name, places: semaphore(places), bodies: semaphore(room), room }
        };
        let (places, bytes) = (config.requests_in_flight, config.bodies_bytes);
        Self {
            submissions: kind("submissions", places * 3 / 4, bytes / 4 * 3),
            others: kind("requests", places.div_ceil(4), bytes / 4),
            line: Semaphore::new(LINE),
            in_parts: Semaphore::new(IN_PARTS / UNIT),
            waiting: semaphore(config.waiting_workers),
            waiting_workers: metrics.waiting_workers.clone(),
            body_bytes: config.body_bytes,
            batch_body_bytes: config.batch_body_bytes,
        }
    }

    /// A place for `request`, and room for its body.
    pub fn take<B: HttpBody>(&self, request: &Request<B>) -> impl Future<Output = Result<Visit, Problem>> + use<'_, B> {
        let kind = if is_submission(request) { &self.submissions } else { &self.others };
        let units = kind.room_for(request.body().size_hint().upper(), self.longest_body(request.uri().path()));
        self.stay(kind, units)
    }

    async fn stay(&self, kind: &Kind, units: u32) -> Result<Visit, Problem> {
        let until = Instant::now() + self.patience();
        let full = |what: String| move || Problem::new(Code::Overloaded, what.clone()).retry_after(1);
        let no_room = full(format!("the bodies of other {} take up all the room (limits.bodies_bytes)", kind.name));
        let no_place = full(format!("too many {} are under way (limits.requests_in_flight)", kind.name));
        // In this order, so that nobody keeps a place from a small request while it waits for room.
        let room = match units {
            0 => None,
            units => Some(self.enter(&kind.bodies, units, until).await.ok_or_else(no_room)?),
        };
        let place = self.enter(&kind.places, 1, until).await.ok_or_else(no_place)?;
        let held = Held { _room: room, _place: place };
        Ok(Visit(Arc::new(Mutex::new(Stay { held: Some(held), wait: Duration::ZERO }))))
    }

    /// Enters at once or stands in line, if there is place in it, until `until`.
    async fn enter(&self, into: &Arc<Semaphore>, units: u32, until: Instant) -> Option<OwnedSemaphorePermit> {
        if let Ok(entered) = Arc::clone(into).try_acquire_many_owned(units) {
            return Some(entered);
        }
        let _in_line = self.line.try_acquire().ok()?;
        tokio::time::timeout_at(until, Arc::clone(into).acquire_many_owned(units)).await.ok()?.ok()
    }

    fn patience(&self) -> Duration {
        let in_line = LINE - self.line.available_permits();
        let patience = (MOMENT + LONGER * u32::try_from(in_line).unwrap_or(u32::MAX)).min(LONGEST);
        // Who came together must not be refused, and come back, together.
        patience.mul_f64(0.75 + rand::random::<f64>() / 4.0)
    }

    /// The turn of a batch with `bytes` that have arrived to be taken apart; it lasts until it is dropped. Those that
    /// wait for it have room already, and a deadline.
    pub async fn turn(&self, bytes: usize) -> Turn<'_> {
        let units = u32::try_from(bytes.min(IN_PARTS).div_ceil(UNIT)).expect("invariant: a few thousand");
        Turn { _units: self.in_parts.acquire_many(units).await.ok() }
    }

    fn longest_body(&self, path: &str) -> usize {
        match path {
            "/v1/tasks/batch" | "/v1/leases/settle" => self.batch_body_bytes,
            _ => self.body_bytes,
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

impl Kind {
    /// The room that a body takes, in units: as much as is `announced`, but no more than its route will read, and no
    /// more than a part.
    fn room_for(&self, announced: Option<u64>, longest: usize) -> u32 {
        let bytes = announced.map_or(longest, |bytes| usize::try_from(bytes).unwrap_or(longest).min(longest));
        let units = if bytes <= SMALL { 0 } else { bytes.div_ceil(UNIT).min(self.room / PART) };
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

fn semaphore(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

/// A batch's turn.
pub struct Turn<'a> {
    _units: Option<SemaphorePermit<'a>>,
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
    _room: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
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
    use tokio::task::JoinSet;

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

    fn batch(length: usize) -> Request<Announced> {
        request(Method::POST, "/v1/tasks/batch", Some(length))
    }

    /// Takes all the room for submissions.
    async fn fill(places: &Places) -> Vec<Visit> {
        let mut visits = Vec::new();
        for _ in 0..PART {
            visits.push(places.take(&batch(64 * MIB)).await.unwrap());
        }
        visits
    }

    /// How long `places` let a request wait before they refused it.
    async fn refused_after(places: &Places, request: &Request<Announced>) -> Duration {
        let began = Instant::now();
        let problem = places.take(request).await.err().expect("it is refused");
        assert_eq!(problem.code(), Code::Overloaded);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_a_request_stands_in_line_and_is_then_refused() {
        let places = places(1, MIB, 1);
        let visit = places.take(&lease()).await.unwrap();
        let waited = refused_after(&places, &lease()).await;
        assert!((MOMENT / 2..=MOMENT).contains(&waited), "{waited:?}");
        drop(visit);
        assert!(places.take(&lease()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stands_in_line_gets_what_is_left() {
        let places = places(4, MIB, 1);
        let visit = places.take(&lease()).await.unwrap();
        let next = lease();
        let (waiting, ()) = tokio::join!(places.take(&next), async {
            tokio::task::yield_now().await;
            drop(visit);
        });
        assert!(waiting.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_the_line_the_longer_it_takes() {
        let places = Arc::new(places(2_000, 2 * MIB, 1));
        let _all_the_room = fill(&places).await;
        let (began, mut line) = (Instant::now(), JoinSet::new());
        for _ in 0..1_000 {
            let places = Arc::clone(&places);
            line.spawn(async move { refused_after(&places, &batch(MIB)).await });
        }
        line.join_all().await;
        let took = began.elapsed();
        assert!((900 * LONGER..=1_000 * LONGER + MOMENT).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_is_bounded() {
        let places = Arc::new(places(8, 2 * MIB, 1));
        let _all_the_room = fill(&places).await;
        let mut line = JoinSet::new();
        for _ in 0..=LINE {
            let places = Arc::clone(&places);
            line.spawn(async move { refused_after(&places, &batch(MIB)).await });
        }
        let at_once = line.join_all().await.into_iter().filter(Duration::is_zero).count();
        assert_eq!(at_once, 1, "the others stand in line");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_submissions_leaves_places_to_the_rest() {
        let places = places(4, MIB, 1);
        let submit = || request(Method::POST, "/v1/tasks", Some(10));
        let mut flood = Vec::new();
        for _ in 0..3 {
            flood.push(places.take(&submit()).await.unwrap());
        }
        assert!(places.take(&submit()).await.is_err() && places.take(&batch(10)).await.is_err());
        let read = places.take(&request(Method::GET, "/v1/tasks", Some(0))).await.unwrap();
        drop(read);
        assert!(places.take(&lease()).await.is_ok());
        drop(flood);
        assert!(places.take(&submit()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_leaves_its_place_to_others() {
        let places = places(1, MIB, 1);
        let visit = places.take(&lease()).await.unwrap();
        let waiting = places.wait(&visit, Duration::from_secs(20)).unwrap();
        assert_eq!(visit.wait(), Duration::from_secs(20));
        assert_eq!(places.waiting_workers.get(), 1);
        let other = places.take(&lease()).await.unwrap();
        assert!(places.wait(&other, Duration::from_secs(1)).is_err(), "the waiting are bounded too");
        drop(waiting);
        assert_eq!(places.waiting_workers.get(), 0);
        assert!(places.wait(&other, Duration::from_secs(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_a_kind_share_a_bounded_room() {
        // Twelve for submissions, four for the rest; and of those a quarter for each.
        let places = places(100, 16 * MIB, 1);
        let unknown = || request(Method::POST, "/v1/tasks/batch", None);
        let mut held = vec![places.take(&batch(60 * MIB)).await.unwrap(), places.take(&unknown()).await.unwrap()];
        held.push(places.take(&batch(3 * MIB)).await.unwrap());
        held.push(places.take(&batch(2 * MIB)).await.unwrap());
        let refused = places.take(&batch(2 * MIB)).await.err().expect("a MiB is left");
        assert!(refused.to_wire().detail.contains("limits.bodies_bytes"));
        assert!(places.take(&unknown()).await.is_err());
        assert!(places.take(&batch(MIB)).await.is_ok());
        assert!(places.take(&batch(SMALL)).await.is_ok(), "a small one needs no room");
        let settle = || request(Method::POST, "/v1/leases/settle", Some(2 * MIB));
        let _settling = places.take(&settle()).await.unwrap();
        // A route that takes a MiB needs room for no more, whatever is announced or not.
        for length in [None, Some(9 * MIB)] {
            assert!(places.take(&request(Method::POST, "/v1/tasks", length)).await.is_ok(), "{length:?}");
        }
        held.clear();
        assert!(places.take(&batch(2 * MIB)).await.is_ok());
    }

    #[tokio::test]
    async fn batches_are_taken_apart_a_few_at_once() {
        let places = places(1, MIB, 1);
        let huge = places.turn(100 * IN_PARTS).await;
        let mut next = std::pin::pin!(places.turn(1));
        tokio::select! {
            biased;
            _ = next.as_mut() => panic!("it is nobody's turn"),
            () = std::future::ready(()) => {}
        }
        drop(huge);
        next.await;
    }
}
