//! Three nodes on one PostgreSQL keep their promises under every fault.

use std::path::PathBuf;
use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, connect, execute};
use punctual_trials::cluster::{self, ClusterFault, ClusterPlan};
use punctual_trials::planted::{Bug, Trial};
use punctual_trials::workload::WorkloadSize;

fn plan(faults: &[ClusterFault]) -> ClusterPlan {
    let seed = rand::random_range(0..1_000_000);
    println!("seed {seed}");
    ClusterPlan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_punctual-planted")),
        bug: None,
        faults: faults.to_vec(),
        cycles: faults.len(),
        seed,
        load: WorkloadSize::LIGHT,
        freeze: Duration::from_secs(5),
        drain: Duration::from_mins(1),
        histories: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    }
}

/// Each fault once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_its_promises_whatever_breaks() {
    let report = cluster::run(&plan(&ClusterFault::ALL), |_| {}).await;
    println!("{report}");
    assert!(report.is_clean());
    // A trial in which nothing happens proves nothing.
    assert!(report.acknowledged > 50 && report.completed > 30 && report.unanswered > 0);
    assert!(report.ordered > 10 && report.dependent > 3 && report.limited > 10 && report.scheduled > 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_that_is_ignored_is_noticed() {
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| bug.shows_in() == Trial::Cluster).collect();
    assert_eq!(bugs, [Bug::TermsIgnored], "every bug has a test");
    let (bug, faults) = (Bug::TermsIgnored, [ClusterFault::FreezeNode, ClusterFault::FreezeNode]);
    // The bug delays every claim. A frozen node continues its claim as soon as other nodes own the
    // partitions. The others cannot have claimed the tasks meanwhile, since they are as slow.
    let plan = ClusterPlan { bug: Some(bug), drain: Duration::from_secs(6), ..plan(&faults) };
    let report = cluster::run(&plan, |_| {}).await;
    println!("{report}");
    assert!(report.broke(bug.breaks()), "{:?} was not broken by {}", bug.breaks(), bug.name());
}

/// A task that a worker has held for an hour too long, and a key without a task.
const SPOIL: &str = "
    INSERT INTO punctual.lanes (key, tenant, queue, kind, priority) VALUES ('\\x00', 'default', 'q', 't', 5);
    INSERT INTO punctual.tasks (id, lane, version, execute_at, due_at, created_at, timeout_millis, lease_expires_at,
            attempts, crashes, state, cancel_requested, worker, trail, payload)
        SELECT gen_random_uuid(), 1, 3, now, now, now, 1000, now - 3600000, 1, 0, 3, false, 'somebody', '\\x', '{}'
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock;
    INSERT INTO punctual.idempotency (tenant, key, task_id, fingerprint, created_at)
        VALUES ('default', 'lonely', gen_random_uuid(), '\\x', 0);
    INSERT INTO punctual.partitions (number, owner, term, expires_at) VALUES
        (1, NULL, 1, 9000000000000), (2, 7, 1, 9000000000000), (3, 7, 1, 0)";

/// The queries for leftovers find them.
#[tokio::test]
async fn leftovers_in_a_database_are_found() {
    let (postgres, soon) = (Postgres::start().await, Duration::from_secs(20));
    let url = postgres.create_database().await;
    cluster::make_schema(&plan(&[]).program, &url);
    assert!(cluster::held(&url, soon).await.is_empty() && cluster::left(&url, soon).await.is_empty());
    assert!(cluster::left_in_the_end(&url, soon).await.is_empty());
    execute(&url, SPOIL).await;
    let open = connect(&url).await;
    open.batch_execute("BEGIN; SELECT pg_advisory_lock(1)").await.expect("the server answers");
    let found = |found: Vec<String>, wanted: &[&str]| {
        let missing: Vec<&&str> =
            wanted.iter().filter(|what| !found.iter().any(|line| line.contains(**what))).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} is not in {found:#?}")) }
    };
    found(cluster::held(&url, Duration::ZERO).await, &["held by somebody"]).expect("the hold is seen");
    let wanted =
        ["partition 1 is unowned", "partition 2 belongs to", "partition 3 is unowned", "lonely", "a transaction"];
    // A transaction counts when it is old.
    let seen = async || found(cluster::left(&url, Duration::ZERO).await, &wanted);
    eventually("all leftovers are found", soon, seen).await;
    found(cluster::left_in_the_end(&url, Duration::ZERO).await, &["advisory lock", "a session"])
        .expect("both are seen");
}
