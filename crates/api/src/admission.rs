//! Admission control: how many requests, and how many bytes of their bodies, the API takes on.
//!
//! [`crate::middleware`] asks for a [`Permit`] before every request but the probes of the node.
//! A request that gets none waits a moment, its body unread, and is then refused. The wait queue
//! is short: it only has to refill a permit as soon as one comes back. If the queue is full we
//! still delay the 503: an immediate refusal invites an immediate retry, and a refusal costs more
//! than a waiter. The body of such a request is read and dropped before the delay. It has just
//! been sent, so reading it now is cheap, and thousands of unread bodies would fill the kernel's
//! memory.
//!
//! Each [`RequestClass`] has permits and body bytes of its own, so that a flood of one does not
//! keep the others out: workers settle beside any number of submissions, and submissions are stored
//! beside any number of lists. A worker in a long poll is idle: it gives its permit back and is
//! counted among the waiting workers instead.
//!
//! A request that may have a large answer also waits for room among the answers that clients have
//! yet to read ([`crate::unread`]). That memory stays taken when the permit ends.
//!
//! Invariant: whatever is held here is bounded, and is given back by dropping its guard.

mod class;

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::{Request, Version};
use axum::response::Response;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use self::class::{RequestClass, RequestKind};
use crate::auth::ClaimedTenant;
use crate::extract::Caller;
use crate::metrics::Metrics;
use crate::problem::{Code, Problem};
use crate::server::{AnswerMemory, UnreadOnConnection};
use crate::state::ApiConfig;
use crate::unread::{UnreadAnswers, UnreadBytes};

/// The wait of a request that waits alone, and the longest wait; chance takes off up to a quarter.
/// Many clients give up after five seconds, and should learn before that when to come back.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(4);

/// How much each request that already waits adds to the wait. Below the longest wait this refuses
/// about 500 requests a second, however many come back at once, and so bounds what they cost.
const WAIT_PER_WAITER: Duration = Duration::from_millis(2);

/// The maximum number of requests that wait for a permit or for their refusal: one for each
/// connection by default, and some more for connections with many requests.
const WAITERS_MAX: usize = 16_384;

/// The maximum number of requests that wait for body bytes. Each has up to some 200 KB in the
/// kernel's memory.
pub(crate) const BODY_WAITERS_MAX: usize = 128;

/// The maximum number of requests of a class that wait for room for their answers. All of them are
/// woken whenever an answer was read, since the room may be another tenant's.
const ANSWER_WAITERS_MAX: usize = 128;

/// Bodies are counted in units of this size: memory need not be bounded to the byte.
const UNIT_BYTES: usize = 1_024;

/// A body up to this size needs no body bytes, so that single tasks overtake batches that wait.
const SMALL_BODY_BYTES: usize = 16 * UNIT_BYTES;

/// Bytes of batches that are parsed and written at once. A parsed batch is many times larger than
/// its text, and it leaves the processor's caches if it waits for the writer: beyond some
/// milliseconds of work for the writer, more at once is slower.
const PARSED_BYTES_MAX: usize = 6 * 1024 * UNIT_BYTES;

/// One body takes at most this fraction of all body bytes: a slow sender must not keep the rest
/// out.
const BODY_SHARE: usize = 4;

/// An answer up to this size is not counted on HTTP/1, where a connection has one at a time: it
/// fits into the kernel's buffer.
const SMALL_ANSWER_BYTES: u64 = 16 * 1_024;

/// The admission control of one node.
pub struct Admission {
    submissions: RequestClass,
    lists: RequestClass,
    reads: RequestClass,
    other_requests: RequestClass,
    waiters: Arc<Semaphore>,
    parsing: Semaphore,
    workers: WaitingRoom,
    clients: WaitingRoom,
    body_bytes: usize,
    batch_body_bytes: usize,
}

/// A bounded number of permits, and of requests that may wait for one.
struct PermitPool {
    permits: Arc<Semaphore>,
    waiters: Semaphore,
}

impl PermitPool {
    fn new(permits: usize, waiters: usize) -> Self {
        Self { permits: semaphore(permits), waiters: Semaphore::new(waiters.min(Semaphore::MAX_PERMITS)) }
    }
}

impl Admission {
    /// Admits as much as `config` allows.
    pub fn new(config: &ApiConfig, metrics: &Metrics) -> Self {
        let (requests, bytes) = (config.requests_in_flight, config.bodies_bytes);
        // Who lists and does not read must not keep others from submitting.
        let (read, written) =
            (UnreadAnswers::new(config.answers_bytes / 2), UnreadAnswers::new(config.answers_bytes / 2));
        Self {
            submissions: RequestClass::of_writes("submissions", requests * 3 / 4, bytes / 4 * 3, &written),
            lists: RequestClass::of_lists(&read),
            reads: RequestClass::of_reads(requests / 8, &read),
            other_requests: RequestClass::of_writes("requests", requests.div_ceil(4), bytes / 4, &written),
            waiters: semaphore(WAITERS_MAX),
            parsing: Semaphore::new(PARSED_BYTES_MAX / UNIT_BYTES),
            workers: WaitingRoom::new(config.waiting_workers, &metrics.waiting_workers, "workers"),
            clients: WaitingRoom::new(config.waiting_clients, &metrics.waiting_clients, "clients"),
            body_bytes: config.body_bytes,
            batch_body_bytes: config.batch_body_bytes,
        }
    }

    /// Admits `request`, after a wait if need be.
    pub fn admit<B: HttpBody>(
        &self,
        request: &Request<B>,
    ) -> impl Future<Output = Result<Permit, AdmissionRefusal>> + use<'_, B> {
        let class = match RequestKind::of(request) {
            RequestKind::Submission => &self.submissions,
            RequestKind::List => &self.lists,
            RequestKind::Read => &self.reads,
            RequestKind::Other => &self.other_requests,
        };
        let units = class.units_of(request.body().size_hint().upper(), self.longest_body(request.uri().path()));
        // A client that leaves answers unread gets no more of them than there is room for.
        let leaves_unread = UnreadOnConnection::beside(request);
        let answer = AnswerAsked {
            answers: Arc::clone(&class.answers),
            tenant: answered_tenant(request),
            counts_small: request.version() >= Version::HTTP_2,
        };
        self.admit_to(class, units, class.answer_bytes(units, leaves_unread), answer)
    }

    async fn admit_to(
        &self,
        class: &RequestClass,
        units: u32,
        answer_bytes: Option<usize>,
        answer: AnswerAsked,
    ) -> Result<Permit, AdmissionRefusal> {
        let mut wait = None;
        // Body bytes first: a request that waits for them must not hold a permit that a small one
        // could use.
        let body = match units {
            0 => None,
            units => match self.acquire(class, &class.bodies, units, &mut wait).await {
                None => {
                    let why = "the bodies of other {} take up all body bytes (limits.bodies_bytes)";
                    return Err(AdmissionRefusal::new(&why.replace("{}", class.name), wait));
                }
                acquired => acquired,
            },
        };
        let (request, unread) = loop {
            let Some(request) = self.acquire(class, &class.requests, 1, &mut wait).await else {
                return Err(AdmissionRefusal::new(&format!("too many {} are under way", class.name), wait));
            };
            let Some(bytes) = answer_bytes else { break (request, None) };
            if let Some(unread) = class.answers.try_hold(&answer.tenant, bytes) {
                break (request, Some(unread));
            }
            // A request with room for its answer may use the permit meanwhile.
            drop(request);
            if !self.wait_for_room(class, &answer.tenant, &mut wait).await {
                return Err(AdmissionRefusal::new(&unread_answers(class.name), wait));
            }
        };
        let held = HeldPermits { _body: body, _request: request };
        let state = PermitState { held: Some(held), reserved: unread, answer, wait: Duration::ZERO };
        Ok(Permit(Arc::new(Mutex::new(state))))
    }

    /// Waits until there is room for another unread answer; false if there is none in time.
    async fn wait_for_room(&self, class: &RequestClass, tenant: &str, wait: &mut Option<AdmissionWait>) -> bool {
        let (Some(until), Ok(_waiter)) = (self.wait_until(class, wait), class.answer_waiters.try_acquire()) else {
            return false;
        };
        class.answers.has_room_by(tenant, until).await
    }

    /// Acquires `units` at once, or waits for them if the pool has room for another waiter. Both
    /// pools of a request share one `wait`, at whose end it is refused.
    async fn acquire(
        &self,
        class: &RequestClass,
        pool: &PermitPool,
        units: u32,
        wait: &mut Option<AdmissionWait>,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(acquired) = Arc::clone(&pool.permits).try_acquire_many_owned(units) {
            return Some(acquired);
        }
        let until = self.wait_until(class, wait)?;
        let _waiter = pool.waiters.try_acquire().ok()?;
        tokio::time::timeout_at(until, Arc::clone(&pool.permits).acquire_many_owned(units)).await.ok()?.ok()
    }

    /// The end of the wait, which begins now if it has not. None if too many requests wait already.
    fn wait_until(&self, class: &RequestClass, wait: &mut Option<AdmissionWait>) -> Option<Instant> {
        if wait.is_none() {
            *wait = self.begin_wait(class);
        }
        Some(wait.as_ref()?.until)
    }

    fn begin_wait(&self, class: &RequestClass) -> Option<AdmissionWait> {
        let waiter = Arc::clone(&self.waiters).try_acquire_owned().ok()?;
        let waiting = WAITERS_MAX - 1 - self.waiters.available_permits();
        let wait = (class.wait_min + WAIT_PER_WAITER * u32::try_from(waiting).unwrap_or(u32::MAX)).min(WAIT_MAX);
        // Requests that came together must not be refused, and come back, together.
        let wait = wait.mul_f64(0.75 + rand::random::<f64>() / 4.0);
        Some(AdmissionWait { until: Instant::now() + wait, _waiter: waiter })
    }

    /// Waits until a batch of `bytes` may be parsed. The caller has its permit and a deadline
    /// already.
    pub async fn parse_permit(&self, bytes: usize) -> ParsePermit<'_> {
        let units = bytes.min(PARSED_BYTES_MAX).div_ceil(UNIT_BYTES);
        let units = u32::try_from(units).expect("invariant: a few thousand");
        ParsePermit { _units: self.parsing.acquire_many(units).await.ok() }
    }

    /// The maximum bytes of a body at this path.
    pub(crate) fn longest_body(&self, path: &str) -> usize {
        match path {
            "/v1/tasks/batch" | "/v1/leases/settle" => self.batch_body_bytes,
            _ => self.body_bytes,
        }
    }

    /// Gives back what `permit` holds and counts its worker as waiting, for at most `wait`.
    /// Dropping the guard ends the wait.
    pub fn wait(&self, permit: &Permit, wait: Duration) -> Result<LongWait, Problem> {
        self.workers.enter(permit, wait)
    }

    /// The same for a client that waits for a task to finish.
    pub fn wait_for_task(&self, permit: &Permit, wait: Duration) -> Result<LongWait, Problem> {
        self.clients.enter(permit, wait)
    }
}

/// How many of one kind wait, and may wait.
struct WaitingRoom {
    places: Arc<Semaphore>,
    gauge: Gauge,
    who: &'static str,
}

impl WaitingRoom {
    fn new(places: usize, gauge: &Gauge, who: &'static str) -> Self {
        Self { places: semaphore(places), gauge: gauge.clone(), who }
    }

    fn enter(&self, permit: &Permit, wait: Duration) -> Result<LongWait, Problem> {
        let crowded = || Problem::new(Code::Overloaded, format!("too many {} wait here already", self.who));
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| crowded().retry_after(1))?;
        let mut state = permit.0.lock();
        (state.held, state.reserved) = (None, None);
        state.wait = wait;
        drop(state);
        self.gauge.inc();
        Ok(LongWait { _place: place, gauge: self.gauge.clone() })
    }
}

/// The tenant that gets the answer; a signed request is not known yet, and counts as that of the
/// key that it claims. A request that will be refused has none.
fn answered_tenant<B>(request: &Request<B>) -> String {
    let claimed = request.extensions().get::<ClaimedTenant>().map(|claimed| claimed.0.clone());
    let known = || Caller::of(request.extensions(), request.headers()).map(|caller| caller.tenant);
    claimed.or_else(|| known().ok()).unwrap_or_default()
}

/// Why there is no room for an answer.
fn unread_answers(requests: &str) -> String {
    format!("the answers to other {requests} have yet to be read (limits.answers_bytes)")
}

fn semaphore(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

/// The wait of a request for its permit, or for its refusal.
#[derive(Debug)]
struct AdmissionWait {
    until: Instant,
    _waiter: OwnedSemaphorePermit,
}

/// A request that was not admitted.
#[derive(Debug)]
pub struct AdmissionRefusal {
    problem: Problem,
    wait: Option<AdmissionWait>,
}

impl AdmissionRefusal {
    fn new(detail: &str, wait: Option<AdmissionWait>) -> Self {
        Self { problem: Problem::new(Code::Overloaded, detail).retry_after(1), wait }
    }

    /// The problem to answer with, once the wait is over.
    pub async fn problem(self) -> Problem {
        if let Some(wait) = &self.wait {
            tokio::time::sleep_until(wait.until).await;
        }
        self.problem
    }
}

/// The right to parse a batch, until it is dropped.
pub struct ParsePermit<'a> {
    _units: Option<SemaphorePermit<'a>>,
}

/// The permit of an admitted request, among the request's extensions. It ends when the last clone
/// is dropped.
#[derive(Clone)]
pub struct Permit(Arc<Mutex<PermitState>>);

struct PermitState {
    /// None while the worker waits.
    held: Option<HeldPermits>,
    /// The room for its answer.
    reserved: Option<UnreadBytes>,
    answer: AnswerAsked,
    wait: Duration,
}

/// How the answer to a request is counted.
struct AnswerAsked {
    answers: Arc<UnreadAnswers>,
    tenant: String,
    /// HTTP/2: a connection can have many answers, and its peer need not read any.
    counts_small: bool,
}

/// The permits of a request while it is served.
struct HeldPermits {
    _body: Option<OwnedSemaphorePermit>,
    _request: OwnedSemaphorePermit,
}

impl Permit {
    /// How long the request may wait on top of its deadline.
    pub fn wait(&self) -> Duration {
        self.0.lock().wait
    }

    /// Reserves room for an answer of about `bytes`, if that was not known at the admission.
    pub fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        let mut state = self.0.lock();
        if state.reserved.is_none() && bytes as u64 > SMALL_ANSWER_BYTES {
            state.reserved = state.answer.answers.try_hold(&state.answer.tenant, bytes);
            if state.reserved.is_none() {
                return Err(Problem::new(Code::Overloaded, unread_answers("requests")).retry_after(1));
            }
        }
        Ok(())
    }

    /// The answer to the request, counted from now until it is read.
    pub fn count(&self, mut response: Response) -> Response {
        let bytes = response.body().size_hint().lower();
        let mut state = self.0.lock();
        let reserved = state.reserved.take();
        if bytes > SMALL_ANSWER_BYTES || (state.answer.counts_small && bytes > 0) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let unread = match reserved {
                Some(reserved) => reserved.resized(bytes),
                None => state.answer.answers.hold(&state.answer.tenant, bytes),
            };
            response.extensions_mut().insert(AnswerMemory::new(unread));
        }
        response
    }
}

/// A worker in a long poll, or a client that waits for a task.
pub struct LongWait {
    _place: OwnedSemaphorePermit,
    gauge: Gauge,
}

impl Drop for LongWait {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

#[cfg(test)]
mod tests;
