//! A bounded pool for work that needs much processor time: reading large requests and writing
//! large answers.
//!
//! The routes run such work here, away from the threads that serve small requests. At most one
//! piece of work runs per processor. More parallelism would only starve the store's writer, which
//! every request ends up waiting for.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::problem::{Code, Problem};

/// Work on at least this many bytes goes to the pool. It takes a fraction of a millisecond.
const POOLED_BYTES: usize = 64 * 1024;

/// The pool of one node. Cheap to clone.
#[derive(Clone)]
pub struct CpuPool {
    slots: Arc<Semaphore>,
}

impl Default for CpuPool {
    fn default() -> Self {
        Self::with_slots(available_parallelism().map_or(1, NonZero::get))
    }
}

impl CpuPool {
    /// A pool that runs at most `count` pieces of work at once.
    pub fn with_slots(count: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(count)) }
    }

    /// Runs work whose cost grows with `bytes`: on this thread if it is small, else in the pool.
    pub async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes < POOLED_BYTES { Ok(work()) } else { self.run_pooled(work).await }
    }

    /// Runs work in the pool.
    pub async fn run_pooled<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.expect("invariant: the semaphore is never closed");
        let work = move || {
            // The caller may hang up meanwhile; the slot is taken until the work is done.
            let _slot = slot;
            work()
        };
        spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a piece of work in the pool panicked; answering 500");
            Problem::new(Code::Internal, "the request could not be handled")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn large_work_waits_for_a_slot_and_small_work_does_not() {
        let pool = CpuPool::with_slots(1);
        let (release, released) = mpsc::channel::<()>();
        let mut first = std::pin::pin!(pool.run(POOLED_BYTES, move || released.recv().is_ok()));
        let mut second = std::pin::pin!(pool.run(POOLED_BYTES, || "second"));
        let in_order = async {
            tokio::select! {
                biased;
                _ = first.as_mut() => panic!("the first waits to be released"),
                _ = second.as_mut() => panic!("the first has the only slot"),
                small = pool.run(POOLED_BYTES - 1, || "small") => assert_eq!(small.unwrap(), "small"),
            }
            release.send(()).unwrap();
            assert!(first.await.unwrap());
            second.await.unwrap()
        };
        assert_eq!(in_order.await, "second");
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_request_only() {
        let pool = CpuPool::with_slots(1);
        let failed = pool.run(POOLED_BYTES, || panic!("a bug")).await.map(|()| "done");
        assert_eq!(failed.unwrap_err().code(), Code::Internal);
        assert_eq!(pool.run(POOLED_BYTES, || 7).await.unwrap(), 7);
    }
}
