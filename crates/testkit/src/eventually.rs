//! Waiting for a condition with a deadline: the one way in which black-box tests wait.
//!
//! A probe returns `Ok` with the value that the test waits for, or `Err` with what it saw instead.
//! On a timeout the panic shows the last `Err`.

use std::time::{Duration, Instant};

/// The pause between two probes: much shorter than anything that a test measures, and long enough
/// not to load the machine.
const PAUSE: Duration = Duration::from_millis(10);

/// Probes until the answer is `Ok`, and panics with the last `Err` once `within` has passed.
pub async fn eventually<T>(what: &str, within: Duration, probe: impl AsyncFnMut() -> Result<T, String>) -> T {
    let found = look(within, probe).await;
    found.unwrap_or_else(|seen| panic!("{what}: not within {within:?}; last seen: {seen}"))
}

/// Probes until the answer is `Ok`, and returns the last `Err` once `within` has passed.
pub async fn look<T, E>(within: Duration, mut probe: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match probe().await {
            Err(_) if begun.elapsed() <= within => tokio::time::sleep(PAUSE).await,
            last => return last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_success_is_returned() {
        let mut looks = 0;
        let found = eventually("three looks", Duration::from_secs(5), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(format!("{looks} looks")) }
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "a miracle: not within 20ms; last seen: nothing yet")]
    async fn a_timeout_shows_the_last_error() {
        eventually("a miracle", Duration::from_millis(20), async || Err::<(), _>("nothing yet".to_owned())).await;
    }
}
