//! Asking the store again until it answers: jittered pauses, a bound, and a way out.

use std::time::Duration;

use punctual_core::store::StoreError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why an answer was not waited for any longer.
#[derive(Debug)]
pub(crate) enum GaveUp {
    /// Time was up, or somebody said so.
    Late,
    /// Asking again will not help.
    Hopeless(StoreError),
}

/// Calls `ask` until it succeeds, its error is final, `until` has passed or `stop` is cancelled. `what` is logged
/// once, at the first failure.
pub(crate) async fn persist<T, F>(
    what: &str,
    until: Option<Instant>,
    stop: &CancellationToken,
    mut ask: impl FnMut() -> F,
) -> Result<T, GaveUp>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut tries = 0;
    loop {
        let answer = tokio::select! {
            biased;
            answer = ask() => answer,
            () = stop.cancelled() => return Err(GaveUp::Late),
        };
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) if !error.is_retryable() => return Err(GaveUp::Hopeless(error)),
            Err(error) => error,
        };
        if tries == 0 {
            tracing::warn!(error = %error, "{what}: trying again");
        }
        let wake = Instant::now() + pause(tries, rand::random());
        if until.is_some_and(|until| wake >= until) {
            return Err(GaveUp::Late);
        }
        tokio::select! {
            () = tokio::time::sleep_until(wake) => tries += 1,
            () = stop.cancelled() => return Err(GaveUp::Late),
        }
    }
}

/// Drawn evenly up to a bound that doubles with each try.
pub(crate) fn pause(tries: u32, dice: u64) -> Duration {
    let bound = FIRST_PAUSE.saturating_mul(1 << tries.min(10)).min(LONGEST_PAUSE);
    Duration::from_millis(1 + dice % u64::try_from(bound.as_millis()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn busy() -> StoreError {
        StoreError::Overloaded
    }

    #[tokio::test(start_paused = true)]
    async fn it_asks_until_it_is_answered() {
        let (mut asked, never) = (0, CancellationToken::new());
        let answer = persist("asking", None, &never, || {
            asked += 1;
            ready(if asked < 20 { Err(busy()) } else { Ok(asked) })
        });
        assert_eq!(answer.await.unwrap(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn it_gives_up_in_time_or_when_told_or_when_it_is_hopeless() {
        let never = CancellationToken::new();
        let until = Instant::now() + Duration::from_secs(30);
        let late = persist("asking", Some(until), &never, || ready(Err::<(), _>(busy()))).await;
        assert!(matches!(late, Err(GaveUp::Late)));
        assert!(Instant::now() <= until && Instant::now() + LONGEST_PAUSE >= until);

        let told = never.clone();
        told.cancel();
        let stuck = persist("asking", None, &told, pending::<Result<(), _>>).await;
        assert!(matches!(stuck, Err(GaveUp::Late)));

        let corrupt = StoreError::Corrupt("a row".to_owned());
        let hopeless =
            persist("asking", None, &CancellationToken::new(), || ready(Err::<(), _>(corrupt.clone()))).await;
        assert!(matches!(hopeless, Err(GaveUp::Hopeless(_))));
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!(pause(0, 49), Duration::from_millis(50));
        assert_eq!(pause(1, 99), Duration::from_millis(100));
        assert_eq!(pause(u32::MAX, 1_999), LONGEST_PAUSE);
        assert_eq!(pause(3, 0), Duration::from_millis(1));
    }
}
