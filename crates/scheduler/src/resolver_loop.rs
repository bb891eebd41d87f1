//! The loop of the resolver: whose turn it is, and who has nothing left to wait for.
//!
//! Runs on every node. It is told of what the node's own transactions left, right after their
//! commits, and looks by itself every second for what others left; it tells the dispatcher of
//! what may be claimed then. Losing it for a while costs punctuality and nothing else.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::store::StoreError;
use punctual_core::upkeep::{Resolved, Upkeep};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hints::Hints;

/// How often it looks by itself, and how long it pauses when the store fails.
const SWEEP: Duration = Duration::from_secs(1);

/// How often a page of what is held behind dead letters is looked at again.
const REVIEW: Duration = Duration::from_secs(2);

/// See the module.
pub struct Resolving {
    upkeep: Arc<dyn Upkeep>,
    hints: Arc<Hints>,
}

impl Resolving {
    /// Works off what is left in the store, and tells `hints` what waits then.
    pub fn new(upkeep: Arc<dyn Upkeep>, hints: Arc<Hints>) -> Self {
        Self { upkeep, hints }
    }

    /// Runs until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut reviewed_at = Instant::now();
        let mut is_failing = false;
        while !stop.is_cancelled() {
            let mut done = self.run_once().await.map(drop);
            if done.is_ok() && reviewed_at.elapsed() >= REVIEW {
                reviewed_at = Instant::now();
                done = self.upkeep.review().await;
            }
            match done {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(error = %error, "tasks that wait for others cannot be looked after at present");
                }
                Err(_) => {}
            }
            let told = async {
                if is_failing {
                    std::future::pending::<()>().await;
                }
                self.upkeep.wait_for_notes().await;
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = told => {}
                () = tokio::time::sleep(SWEEP) => {}
            }
        }
    }

    /// Works off all that is left; gives how much there was.
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
