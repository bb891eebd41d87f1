//! Retries a call to the store until it succeeds, its error is permanent, or time is up.
//!
//! The consumer and the settler make all their calls to the store through [`retry`]. It logs a
//! failing call once, however often it is repeated.

use std::time::Duration;

use punctual_core::backoff::ExponentialBackoff;
use punctual_core::store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The pauses between two tries of a call.
pub(crate) const PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// Why a call is not tried again.
#[derive(Debug)]
pub(crate) enum RetryError {
    /// The deadline would pass before the next try, or the worker must end now.
    OutOfTime,
    /// The error would be the same next time.
    Permanent(StoreError),
}

/// Makes `call` until it succeeds, its error is permanent, `deadline` has passed or `stop` is
/// cancelled. `failure` names what failed; it is logged at the first failure.
pub(crate) async fn retry<T, F>(
    failure: &str,
    deadline: Option<Instant>,
    stop: &CancellationToken,
    mut call: impl FnMut() -> F,
) -> Result<T, RetryError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut failures = 0;
    loop {
        let answer = tokio::select! {
            biased;
            answer = call() => answer,
            () = stop.cancelled() => return Err(RetryError::OutOfTime),
        };
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) if !error.is_retryable() => return Err(RetryError::Permanent(error)),
            Err(error) => error,
        };
        failures += 1;
        if failures == 1 {
            tracing::warn!(error = %error, "{failure}; retrying until the store answers");
        }
        let wake_at = Instant::now() + PAUSES.pause(failures, rand::random());
        if deadline.is_some_and(|deadline| wake_at >= deadline) {
            return Err(RetryError::OutOfTime);
        }
        tokio::select! {
            () = tokio::time::sleep_until(wake_at) => {}
            () = stop.cancelled() => return Err(RetryError::OutOfTime),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    async fn always(error: StoreError, deadline: Option<Instant>) -> Result<(), RetryError> {
        retry("cannot ask", deadline, &CancellationToken::new(), || ready(Err(error.clone()))).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_repeated_until_it_succeeds() {
        let (mut calls, never) = (0, CancellationToken::new());
        let answer = retry("cannot ask", None, &never, || {
            calls += 1;
            ready(if calls < 20 { Err(StoreError::Overloaded) } else { Ok(calls) })
        });
        assert_eq!(answer.await.unwrap(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn no_call_is_made_after_the_deadline() {
        let deadline = Instant::now() + Duration::from_secs(30);
        let late = always(StoreError::Overloaded, Some(deadline)).await;
        assert!(matches!(late, Err(RetryError::OutOfTime)));
        let longest = PAUSES.longest_pause(u32::MAX);
        assert!(Instant::now() <= deadline && Instant::now() + longest >= deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_a_call_that_hangs() {
        let stop = CancellationToken::new();
        stop.cancel();
        let stuck = retry("cannot ask", None, &stop, pending::<Result<(), _>>).await;
        assert!(matches!(stuck, Err(RetryError::OutOfTime)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_error_is_not_retried() {
        let corrupt = always(StoreError::Corrupt("a row".to_owned()), None).await;
        assert!(matches!(corrupt, Err(RetryError::Permanent(_))));
    }
}
