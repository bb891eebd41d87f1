//! Heavy work: large requests that are read, and large answers that are written.
//!
//! It is done apart from the threads that serve everybody, so that nobody's small request waits
//! behind it, and no more of it at once than there are processors: more would not be done sooner,
//! but the store's writer, which is what all of it waits for in the end, would get the smaller a
//! share of the processors the more of it there is.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::problem::{Code, Problem};

/// Bytes of a request from which on its reading and writing is heavy: a fraction of a millisecond's work.
const HEAVY: usize = 64 * 1024;

/// Where heavy work is done.
pub struct HeavyWork {
    turns: Arc<Semaphore>,
}

impl Default for HeavyWork {
    fn default() -> Self {
        Self::at_once(available_parallelism().map_or(1, NonZero::get))
    }
}

impl HeavyWork {
    fn at_once(count: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(count)) }
    }

    /// Does work whose cost grows with `bytes`: here, or apart when it is much.
    pub async fn sized<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        if bytes < HEAVY {
            return Ok(work());
        }
        let turn = Arc::clone(&self.turns).acquire_owned().await.expect("invariant: the semaphore is never closed");
        let work = move || {
            // Whoever asked may be gone by then; the turn lasts as long as the work.
            let _turn = turn;
            work()
        };
        spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a large request could not be handled");
            Problem::new(Code::Internal, "the request could not be handled")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn no_more_is_done_at_once_than_there_are_turns() {
        let heavy = HeavyWork::at_once(1);
        let (release, released) = mpsc::channel::<()>();
        let mut first = std::pin::pin!(heavy.sized(HEAVY, move || released.recv().is_ok()));
        let mut second = std::pin::pin!(heavy.sized(HEAVY, || "second"));
        let in_order = async {
            tokio::select! {
                biased;
                _ = first.as_mut() => panic!("the first waits to be released"),
                _ = second.as_mut() => panic!("it is not the second's turn"),
                small = heavy.sized(HEAVY - 1, || "small") => assert_eq!(small.unwrap(), "small"),
            }
            release.send(()).unwrap();
            assert!(first.await.unwrap());
            second.await.unwrap()
        };
        assert_eq!(in_order.await, "second");
    }

    #[tokio::test]
    async fn a_panic_is_a_fault_of_its_own_request() {
        let heavy = HeavyWork::at_once(1);
        let failed = heavy.sized(HEAVY, || panic!("a bug")).await.map(|()| "done");
        assert_eq!(failed.unwrap_err().code(), Code::Internal);
        assert_eq!(heavy.sized(HEAVY, || 7).await.unwrap(), 7);
    }
}
