//! A call on its way to a thread that works on the database, and its answer on the way back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use punctual_core::store::StoreError;
use tokio::sync::oneshot;
use tracing::error;

use super::fault::{Fault, closed};
use super::session::Session;

/// A call that a thread runs, and answers when the outcome is certain: for a write, after the commit.
pub(crate) trait Job: Send {
    /// Does the work, once. Its result is kept until [`Job::answer`].
    fn run(&mut self, session: &mut Session<'_>) -> Result<(), Fault>;

    /// Gives the caller its result, or tells it what went wrong. A caller that does not wait any more is no fault: what
    /// was done stays done.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// The caller's end.
pub(crate) struct Answer<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Answer<T> {
    /// Waits for the answer.
    pub(crate) async fn wait(self) -> Result<T, StoreError> {
        self.0.await.unwrap_or_else(|_| Err(closed()))
    }
}

struct Call<F, T> {
    work: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// A job that does `work`, and where its answer will arrive.
pub(crate) fn job<T, F>(work: F) -> (Box<dyn Job>, Answer<T>)
where
    T: Send + 'static,
    F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Call { work: Some(work), result: None, reply }), Answer(answer))
}

impl<T, F> Job for Call<F, T>
where
    T: Send,
    F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let work = self.work.take().expect("invariant: a job is run once");
        // The caller rolls back what a job that panicked has done so far.
        match catch_unwind(AssertUnwindSafe(|| work(session))) {
            Ok(result) => {
                self.result = Some(result?);
                Ok(())
            }
            Err(_) => {
                error!("a job of the store panicked and was rolled back");
                Err(Fault::Panicked)
            }
        }
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        drop(reply.send(outcome.and_then(|()| result.ok_or_else(closed))));
    }
}
