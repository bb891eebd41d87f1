//! Three nodes on one PostgreSQL stand every fault.

use std::path::PathBuf;
use std::time::Duration;

use punctual_trials::cluster::{self, Fault, Plan};
use punctual_trials::workload::Load;

/// Each fault once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_its_promises_whatever_breaks() {
    let seed = rand::random_range(0..1_000_000);
    println!("seed {seed}");
    let plan = Plan {
        program: PathBuf::from(env!("CARGO_BIN_EXE_punctual-planted")),
        faults: Fault::ALL.to_vec(),
        cycles: Fault::ALL.len(),
        seed,
        load: Load::LIGHT,
        freeze: Duration::from_secs(5),
        drain: Duration::from_mins(1),
        histories: PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    };
    let report = cluster::run(&plan, |_| {}).await;
    println!("{report}");
    assert!(report.is_clean());
    // A trial in which nothing happens proves nothing.
    assert!(report.acknowledged > 50 && report.completed > 30 && report.unanswered > 0);
}
