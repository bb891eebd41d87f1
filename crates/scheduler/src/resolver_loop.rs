//! The loop of the resolver: it grants turns and resolves dependencies.
//!
//! Every node runs it. The node's own commits wake it, and every second it reads the notes of other
//! nodes. It adds a hint for each task that may be claimed then. If it does not run, tasks are only
//! late.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::store::StoreError;
use punctual_core::upkeep::{Resolved, Upkeep};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hints::Hints;

/// How often it reads the notes of other nodes, and how long it pauses when the store fails.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How often it reviews a page of the tasks that are held behind dead letters.
const REVIEW_INTERVAL: Duration = Duration::from_secs(2);

/// The loop of the resolver (see the module).
pub struct ResolverLoop {
    upkeep: Arc<dyn Upkeep>,
    hints: Arc<Hints>,
}

impl ResolverLoop {
    /// Works off the notes in the store, and adds `hints` for the tasks that wait then.
    pub fn new(upkeep: Arc<dyn Upkeep>, hints: Arc<Hints>) -> Self {
        Self { upkeep, hints }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let mut reviewed_at = Instant::now();
        let mut is_failing = false;
        while !stop.is_cancelled() {
            let mut done = self.run_once().await.map(drop);
            if done.is_ok() && reviewed_at.elapsed() >= REVIEW_INTERVAL {
                reviewed_at = Instant::now();
                done = self.upkeep.review().await;
            }
            match done {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = %error, "cannot resolve turns and dependencies; retrying every second");
                }
                Err(_) => {}
            }
            let noted = async {
                if is_failing {
                    std::future::pending::<()>().await;
                }
                self.upkeep.wait_for_notes().await;
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = noted => {}
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
        }
    }

    /// Works off all notes; returns how many tasks changed.
    pub async fn run_once(&self) -> Result<usize, StoreError> {
        let mut tasks = 0;
        loop {
            let Resolved { waiting, tasks: some, more } = self.upkeep.resolve().await?;
            self.hints.add(waiting.iter().map(|(lane, due_at)| (lane, *due_at)));
            tasks += some;
            if !more {
                return Ok(tasks);
            }
        }
    }
}
