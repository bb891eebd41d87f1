//! The phases of a worker's shutdown.
//!
//! They follow each other by the clock, so a call that hangs delays none of them.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

/// The phases (see the module).
#[derive(Clone, Default)]
pub(crate) struct ShutdownPhases {
    /// Begin nothing more.
    pub(crate) shutdown: CancellationToken,
    /// Abort the calls that still run.
    pub(crate) abort: CancellationToken,
    /// Do not call the store again.
    pub(crate) give_up: CancellationToken,
}

impl ShutdownPhases {
    /// Goes through the phases once `shutdown` is cancelled: `abort` after the drain, `give_up`
    /// after the flush. Dropping the guard ends the timer.
    pub(crate) fn follow(&self, shutdown: CancellationToken, drain: Duration, flush: Duration) -> DropGuard {
        let (phases, ended) = (self.clone(), CancellationToken::new());
        if shutdown.is_cancelled() {
            phases.shutdown.cancel();
        }
        let steps = async move {
            shutdown.cancelled().await;
            phases.shutdown.cancel();
            tokio::time::sleep(drain).await;
            phases.abort.cancel();
            tokio::time::sleep(flush).await;
            phases.give_up.cancel();
        };
        tokio::spawn(ended.clone().run_until_cancelled_owned(steps));
        ended.drop_guard()
    }
}
