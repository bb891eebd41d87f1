//! A call that a thread of the database runs, and its answer.
//!
//! The writer and the readers run jobs. A job is run once, and answered when its outcome is
//! certain.

use std::panic::{AssertUnwindSafe, catch_unwind};

use punctual_core::store::StoreError;
use tokio::sync::oneshot;
use tracing::error;

use super::fault::Fault;
use super::session::Session;

/// A call that a thread runs, and answers when the outcome is certain: for a write, after the
/// commit.
pub(crate) trait Job: Send {
    /// Does the work, once. Its result is kept until [`Job::answer`].
    fn run(&mut self, session: &mut Session<'_>) -> Result<(), Fault>;

    /// Sends the result or the error to the caller. If the caller has stopped waiting, the work
    /// still stays done.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// The caller's end.
pub(crate) struct JobAnswer<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> JobAnswer<T> {
    /// Waits for the answer.
    pub(crate) async fn wait(self) -> Result<T, StoreError> {
        self.0.await.unwrap_or_else(|_| Err(given_up()))
    }
}

struct CallJob<F, T> {
    work: Option<F>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// A job that does `work`, and where its answer will arrive.
pub(crate) fn job<T, F>(work: F) -> (Box<dyn Job>, JobAnswer<T>)
where
    T: Send + 'static,
    F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(CallJob { work: Some(work), result: None, reply }), JobAnswer(answer))
}

impl<T, F> Job for CallJob<F, T>
where
    T: Send,
    F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let work = self.work.take().expect("invariant: a job is run once");
        // The thread that runs the job rolls back its writes.
        let Ok(result) = catch_unwind(AssertUnwindSafe(|| work(session))) else {
            error!("a call of the store panicked; rolling it back and failing it");
            return Err(Fault::Panicked);
        };
        self.result = Some(result.inspect_err(|fault| session.damage.report(fault))?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        drop(reply.send(outcome.and_then(|()| result.ok_or_else(given_up))));
    }
}

fn given_up() -> StoreError {
    StoreError::Unavailable("the store gave the call up".to_owned())
}
