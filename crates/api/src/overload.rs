//! The places for requests, and the room for their bodies: how much the interface takes on at once.
//!
//! Whoever finds neither stands in line for a moment, its body unread, and is refused when the
//! moment has passed. The line is short: it need only be long enough for somebody to enter as soon
//! as somebody leaves. Whoever finds it full is refused, but told so no sooner than if it had stood
//! in it: to refuse costs more than to let wait, and a caller that is refused at once and does not
//! wait as it was told comes back at once. Its body is read and dropped before that wait: it has
//! just been sent, so that to read it is cheap now and dear later, and thousands of unread bodies
//! would fill the kernel's memory.
//! New tasks have places and room of their own, so that a flood of them does not keep
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

/// How long a request waits that is alone in it, and how long at the most (up to a quarter less, by chance): many
/// clients give up after five seconds, and should learn before that when to come back.
const MOMENT: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(4);

/// How much longer it waits for each one that waits already: so about 500 are refused a second, as long as the wait is
/// not the longest, however many come back as soon as they are refused, and that bounds what they cost.
const LONGER: Duration = Duration::from_millis(2);

/// How many can wait, in line or to be told of their refusal: as many as there are connections by default, and some with
/// many requests on one.
const CROWD: usize = 16_384;

/// How many can stand in line with a body that needs room. Each has up to some 200 KB in the kernel's memory.
pub(crate) const BODIES_IN_LINE: usize = 128;

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
    crowd: Arc<Semaphore>,
    in_parts: Semaphore,
    waiting: Arc<Semaphore>,
    waiting_workers: Gauge,
    body_bytes: usize,
    batch_body_bytes: usize,
}

/// What the requests of one kind share.
struct Kind {
    name: &'static str,
    places: Hall,
    bodies: Hall,
    /// All the room for bodies, in units.
    room: usize,
}

/// What can be entered, and the line before it.
struct Hall {
    inside: Arc<Semaphore>,
    line: Semaphore,
}

impl Hall {
    fn new(inside: usize, line: usize) -> Self {
        Self { inside: semaphore(inside), line: Semaphore::new(line.min(Semaphore::MAX_PERMITS)) }
    }
}

impl Places {
    /// As many places as `config` says.
    pub fn new(config: &ApiConfig, metrics: &Metrics) -> Self {
        let kind = |name, places: usize, bytes: usize| {
            let (places, room) = (places.max(1), bytes.div_ceil(UNIT).max(1));
            let bodies = Hall::new(room, BODIES_IN_LINE);
            Kind { name, places: Hall::new(places, places), bodies, room }
        };
        let (places, bytes) = (config.requests_in_flight, config.bodies_bytes);
        Self {
            submissions: kind("submissions", places * 3 / 4, bytes / 4 * 3),
            others: kind("requests", places.div_ceil(4), bytes / 4),
            crowd: semaphore(CROWD),
            in_parts: Semaphore::new(IN_PARTS / UNIT),
            waiting: semaphore(config.waiting_workers),
            waiting_workers: metrics.waiting_workers.clone(),
            body_bytes: config.body_bytes,
            batch_body_bytes: config.batch_body_bytes,
        }
    }

    /// A place for `request`, and room for its body.
    pub fn take<B: HttpBody>(&self, request: &Request<B>) -> impl Future<Output = Result<Visit, Refusal>> + use<'_, B> {
        let kind = if is_submission(request) { &self.submissions } else { &self.others };
        let units = kind.room_for(request.body().size_hint().upper(), self.longest_body(request.uri().path()));
        self.stay(kind, units)
    }

    async fn stay(&self, kind: &Kind, units: u32) -> Result<Visit, Refusal> {
        let mut wait = None;
        // In this order, so that nobody keeps a place from a small request while it waits for room.
        let room = match units {
            0 => None,
            units => match self.enter(&kind.bodies, units, &mut wait).await {
                None => {
                    let why = "the bodies of other {} take up all the room (limits.bodies_bytes)";
                    return Err(Refusal::new(&why.replace("{}", kind.name), wait));
                }
                entered => entered,
            },
        };
        let Some(place) = self.enter(&kind.places, 1, &mut wait).await else {
            let why = "too many {} are under way (limits.requests_in_flight)";
            return Err(Refusal::new(&why.replace("{}", kind.name), wait));
        };
        let held = Held { _room: room, _place: place };
        Ok(Visit(Arc::new(Mutex::new(Stay { held: Some(held), wait: Duration::ZERO }))))
    }

    /// Enters at once, or stands in line if there is place in it, for as long as it waits in all. Who does not enter is
    /// refused when that wait is over.
    async fn enter(&self, hall: &Hall, units: u32, wait: &mut Option<Wait>) -> Option<OwnedSemaphorePermit> {
        if let Ok(entered) = Arc::clone(&hall.inside).try_acquire_many_owned(units) {
            return Some(entered);
        }
        if wait.is_none() {
            *wait = self.begin_to_wait();
        }
        let until = wait.as_ref()?.until;
        let _in_line = hall.line.try_acquire().ok()?;
        tokio::time::timeout_at(until, Arc::clone(&hall.inside).acquire_many_owned(units)).await.ok()?.ok()
    }

    /// None if too many wait already.
    fn begin_to_wait(&self) -> Option<Wait> {
        let in_crowd = Arc::clone(&self.crowd).try_acquire_owned().ok()?;
        let others = CROWD - 1 - self.crowd.available_permits();
        let patience = (MOMENT + LONGER * u32::try_from(others).unwrap_or(u32::MAX)).min(LONGEST);
        // Who came together must not be refused, and come back, together.
        let patience = patience.mul_f64(0.75 + rand::random::<f64>() / 4.0);
        Some(Wait { until: Instant::now() + patience, _in_crowd: in_crowd })
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

/// One that waits, in line or to be told of its refusal.
#[derive(Debug)]
struct Wait {
    until: Instant,
    _in_crowd: OwnedSemaphorePermit,
}

/// There is neither place nor room for a request.
#[derive(Debug)]
pub struct Refusal {
    problem: Problem,
    wait: Option<Wait>,
}

impl Refusal {
    fn new(detail: &str, wait: Option<Wait>) -> Self {
        Self { problem: Problem::new(Code::Overloaded, detail).retry_after(1), wait }
    }

    /// What to answer, when it is time to.
    pub async fn told(self) -> Problem {
        if let Some(wait) = &self.wait {
            tokio::time::sleep_until(wait.until).await;
        }
        self.problem
    }
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

    /// How long `places` let a request wait in line, and until it was told of its refusal.
    async fn refused_after(places: &Places, request: &Request<Announced>) -> (Duration, Duration) {
        let began = Instant::now();
        let refusal = places.take(request).await.err().expect("it is refused");
        let in_line = began.elapsed();
        assert_eq!(refusal.told().await.code(), Code::Overloaded);
        (in_line, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn over_the_bound_a_request_stands_in_line_and_is_then_refused() {
        let places = places(1, MIB, 1);
        let visit = places.take(&lease()).await.unwrap();
        let (in_line, told) = refused_after(&places, &lease()).await;
        assert_eq!(in_line, told);
        assert!((MOMENT / 2..=MOMENT).contains(&told), "{told:?}");
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

    /// How `count` batches fare that come together when there is no room.
    async fn flood(places: Places, count: usize) -> Vec<(Duration, Duration)> {
        let _all_the_room = fill(&places).await;
        let (places, mut crowd) = (Arc::new(places), JoinSet::new());
        for _ in 0..count {
            let places = Arc::clone(&places);
            crowd.spawn(async move { refused_after(&places, &batch(MIB)).await });
        }
        crowd.join_all().await
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_wait_the_longer_it_takes() {
        let flood = flood(places(2_000, 2 * MIB, 1), 1_000).await;
        let took = flood.into_iter().map(|(_, told)| told).max().unwrap();
        assert!((900 * LONGER..=1_000 * LONGER + MOMENT).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_the_line_full_waits_outside_of_it() {
        let flood = flood(places(2_000, 2 * MIB, 1), 10 * BODIES_IN_LINE).await;
        let (in_line, outside): (Vec<_>, Vec<_>) = flood.into_iter().partition(|(in_line, _)| !in_line.is_zero());
        assert_eq!(in_line.len(), BODIES_IN_LINE);
        assert!(in_line.iter().all(|(in_line, told)| in_line == told));
        assert!(outside.iter().all(|(_, told)| *told >= MOMENT / 2), "to come back at once gains nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn the_crowd_is_bounded() {
        let flood = flood(places(8, 2 * MIB, 1), CROWD + 1).await;
        let at_once = flood.iter().filter(|(_, told)| told.is_zero()).count();
        assert_eq!(at_once, 1, "the others wait");
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
        assert!(refused.told().await.to_wire().detail.contains("limits.bodies_bytes"));
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
