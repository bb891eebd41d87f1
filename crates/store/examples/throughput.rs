//! How fast a store is by itself, without HTTP.
//!
//! ```console
//! $ cargo run --release -p punctual-store --example throughput -- [DIRECTORY | postgres://…]
//! [TASKS]
//! ```
//!
//! Inserts in batches of a thousand, claims and completes in batches of a thousand (and both
//! at once from two sides), inserts one by one from 64 callers, and times the reads that are
//! made over and over, over a backlog. The directory must be on a disk, not in memory: every
//! answer waits for an fsync. Beside the rate it reports the processor time of a task, which
//! other work on the machine does not disturb; that of a PostgreSQL server is not in it. A
//! database that is named is migrated, and keeps what is put into it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use punctual_core::clock::{Clock, SystemClock};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::{LaneId, LaneKey, Route};
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Applied, Claim, Claimant, Filter, Inserted, Store};
use punctual_core::task::{Body, Dependencies, NewTask, Task};
use punctual_core::trail::Actor;
use punctual_store::postgres::{self, PostgresStore};
use punctual_store::sqlite::{Options, SqliteStore};

/// As the server does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 1_000;
const CALLERS: usize = 64;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next();
    let tasks = arguments.next().map_or(200_000, |count| count.parse().expect("TASKS is a number"));
    let node = NodeId::random();
    if let Some(url) = place.as_ref().filter(|place| place.starts_with("postgres")) {
        let database = postgres::Migrator::connect(url).await.expect("the server answers");
        database.up(SystemClock.now()).await.expect("the schema is made");
        let store = PostgresStore::connect(url, Arc::new(SystemClock), node, postgres::Options::default()).await;
        println!("{tasks} tasks in PostgreSQL");
        return Bench { store: Arc::new(store.expect("the store opens")), node }.run(tasks).await;
    }
    let directory = place.map_or_else(|| std::env::temp_dir().join("punctual-throughput"), PathBuf::from);
    std::fs::remove_dir_all(&directory).ok();
    let store =
        SqliteStore::open(&directory, Arc::new(SystemClock), node, Options::default()).expect("the store opens");
    println!("{tasks} tasks in {}, SQLite {}", directory.display(), rusqlite::version());
    Bench { store: Arc::new(store), node }.run(tasks).await;
    let bytes: u64 = std::fs::read_dir(&directory)
        .expect("the directory is there")
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|file| file.len())
        .sum();
    println!("{:<34} {:>9} MB", "on the disk", bytes >> 20);
    std::fs::remove_dir_all(&directory).ok();
}

struct Bench {
    store: Arc<dyn Store>,
    node: NodeId,
}

impl Bench {
    async fn run(&self, tasks: usize) {
        let lane = self.insert_batches(tasks).await;
        self.reads(tasks).await;
        self.claim_and_complete(lane, tasks).await;
        self.insert_batches(tasks).await;
        self.claim_and_complete_side_by_side(lane, tasks).await;
        self.insert_one_by_one(tasks / 4).await;
        self.store.close().await.expect("the store closes");
    }

    async fn insert_batches(&self, tasks: usize) -> LaneId {
        let mut meter = Meter::start();
        let mut lane = None;
        for _ in 0..tasks / BATCH {
            let batch: Vec<NewTask> = (0..BATCH).map(|_| self.new_task()).collect();
            let inserted = meter.time(self.store.insert(batch)).await.expect("insert answers");
            if let Some(Inserted::Created(task)) = inserted.first() {
                lane = Some(task.lane.id);
            }
        }
        meter.report("insert, batches of 1,000", tasks);
        lane.expect("something was inserted")
    }

    async fn claim_and_complete(&self, lane: LaneId, tasks: usize) {
        let (mut claims, mut settles) = (Meter::start(), Meter::start());
        let mut left = tasks;
        while left > 0 {
            let taken = claims.time(self.claim(lane)).await;
            left = left.saturating_sub(taken.len());
            settles.time(self.complete(taken)).await;
        }
        claims.report("claim, batches of 1,000", tasks);
        settles.report("complete, batches of 1,000", tasks);
        println!("{:<34} {:>9.0} /s", "claim and complete, in turn", rate(tasks, claims.busy + settles.busy));
    }

    /// As pull workers do: while one batch is worked on, the next is claimed.
    async fn claim_and_complete_side_by_side(&self, lane: LaneId, tasks: usize) {
        let mut meter = Meter::start();
        let claimed = AtomicUsize::new(0);
        let worker = async || {
            loop {
                let taken = self.claim(lane).await;
                if taken.is_empty() {
                    return;
                }
                claimed.fetch_add(taken.len(), Ordering::Relaxed);
                self.complete(taken).await;
            }
        };
        meter.time(async { tokio::join!(worker(), worker(), worker(), worker()) }).await;
        // A database may have held others before.
        let claimed = claimed.into_inner();
        assert!(claimed >= tasks, "{claimed} of {tasks} were claimed");
        meter.report("claim and complete, four workers", claimed);
    }

    async fn insert_one_by_one(&self, tasks: usize) {
        let mut meter = Meter::start();
        let each = tasks / CALLERS;
        let callers = (0..CALLERS).map(|_| {
            let (store, bench) = (Arc::clone(&self.store), Bench { store: Arc::clone(&self.store), node: self.node });
            tokio::spawn(async move {
                let mut took = Vec::with_capacity(each);
                for _ in 0..each {
                    let start = Instant::now();
                    store.insert(vec![bench.new_task()]).await.expect("insert answers");
                    took.push(start.elapsed());
                }
                took
            })
        });
        let callers: Vec<_> = callers.collect();
        let mut took = Vec::with_capacity(tasks);
        meter
            .time(async {
                for caller in callers {
                    took.extend(caller.await.expect("a caller lives"));
                }
            })
            .await;
        meter.report("insert one by one, 64 callers", took.len());
        took.sort_unstable();
        let millis = |of: usize| took[(took.len() - 1) * of / 1_000].as_secs_f64() * 1e3;
        println!(
            "{:<34} {:>9.2} ms, p99 {:.2} ms, longest {:.2} ms",
            "  its answer, p50",
            millis(500),
            millis(990),
            millis(1_000)
        );
    }

    async fn reads(&self, waiting: usize) {
        println!("with {waiting} waiting:");
        let now = SystemClock.now();
        let soonest = Filter { tenant: "bench".into(), by_execute_at: true, ..Filter::default() };
        let newest = Filter { by_execute_at: false, ..soonest.clone() };
        let nothing = Filter { metadata: BTreeMap::from([("no".into(), "no".into())]), ..newest.clone() };
        let mut ids: Vec<TaskId> = Vec::new();
        time("  counts", async { self.store.counts().await.map(drop) }).await;
        time("  heads", async { self.store.heads(None, now, 1_000).await.map(drop) }).await;
        time("  overdue", async { self.store.overdue(vec![], 1_000).await.map(drop) }).await;
        time("  list, 50 newest", async {
            self.store.list(newest, None, 50).await.map(|page| ids = page.tasks.iter().map(|task| task.id).collect())
        })
        .await;
        time("  list, 50 soonest", async { self.store.list(soonest, None, 50).await.map(drop) }).await;
        time("  list, a page that finds nothing", async { self.store.list(nothing, None, 50).await.map(drop) }).await;
        time("  get, 50", async { self.store.get("bench", ids).await.map(drop) }).await;
        time("  check", self.store.check()).await;
    }

    async fn claim(&self, lane: LaneId) -> Vec<Task> {
        let claimant = Claimant::Worker { name: "worker-1".into(), lease_millis: 60_000, due_by: None };
        let claim = Claim { lanes: vec![(lane, BATCH)], limit: BATCH, claimant };
        let claimed = self.store.claim(vec![claim]).await.expect("claim answers");
        claimed.into_iter().flat_map(|claimed| claimed.tasks).collect()
    }

    async fn complete(&self, tasks: Vec<Task>) {
        let by = By { now: SystemClock.now(), node: self.node, actor: Actor::Worker("worker-1".into()) };
        let changes = tasks.iter().map(|task| {
            let result = Json::parse(r#"{"ok": true}"#).ok();
            let event = Event::Complete { result, http_status: None, dropped: None };
            (task.id, transition(&task.position, event, &by).expect("a running task can complete"))
        });
        let applied = self.store.apply(changes.collect()).await.expect("apply answers");
        assert!(applied.iter().all(|applied| matches!(applied, Applied::Done(_))), "no other worker settles them");
    }

    fn new_task(&self) -> NewTask {
        let now = SystemClock.now();
        let by = By { now, node: self.node, actor: Actor::Client };
        let payload = r#"{"customer": "c-1029384", "invoice": 4711, "lines": [1, 2, 3, 4, 5], "note": "some text of a usual length"}"#;
        NewTask {
            id: TaskId::new(),
            lane: LaneKey {
                tenant: "bench".into(),
                queue: "default".into(),
                kind: "bench.task".into(),
                priority: 5,
                route: Route::Pull,
            },
            created_at: now,
            execute_at: now,
            due_at: now,
            expires_at: None,
            idempotency: None,
            body: Body {
                payload: Json::parse(payload).expect("it is well formed"),
                callback: None,
                retry_policy: RetryPolicy::default(),
                timeout_millis: 300_000,
                metadata: BTreeMap::new(),
                schedule_id: None,
                idempotency_key: None,
                ordering_key: None,
                concurrency_key: None,
                dependencies: Dependencies::default(),
            },
            trail: by.submitted(State::Pending),
        }
    }
}

/// Adds up the time of calls, not of what is between them.
struct Meter {
    busy: Duration,
    processor: Option<Duration>,
}

impl Meter {
    fn start() -> Self {
        Self { busy: Duration::ZERO, processor: Some(Duration::ZERO) }
    }

    async fn time<T>(&mut self, call: impl Future<Output = T>) -> T {
        let (processor, start) = (processor_time(), Instant::now());
        let answer = call.await;
        self.busy += start.elapsed();
        self.processor = self
            .processor
            .zip(processor_time().zip(processor))
            .map(|(sum, (now, then))| sum + now.saturating_sub(then));
        answer
    }

    fn report(&self, what: &str, tasks: usize) {
        let each = self.processor.map(|time| time.as_secs_f64() * 1e6 / count(tasks));
        let each = each.map_or_else(String::new, |micros| format!("{micros:>8.1} µs of processor each"));
        println!("{what:<34} {:>9.0} /s {each}", rate(tasks, self.busy));
    }
}

async fn time<T, E: std::fmt::Debug>(what: &str, call: impl Future<Output = Result<T, E>>) {
    let start = Instant::now();
    call.await.expect("it answers");
    println!("{what:<34} {:>9.2} ms", start.elapsed().as_secs_f64() * 1e3);
}

/// The processor time that this process has used, where the system reports it.
fn processor_time() -> Option<Duration> {
    // Nanoseconds on a processor, first number, for each thread.
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let used = threads.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(used.sum()))
}

fn rate(tasks: usize, time: Duration) -> f64 {
    count(tasks) / time.as_secs_f64()
}

fn count(tasks: usize) -> f64 {
    u32::try_from(tasks).map_or(f64::INFINITY, f64::from)
}
