//! SIGTERM and SIGINT: the first asks the process to end, the second ends it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code of a process that was told twice, as a shell gives it for SIGINT.
const IMPATIENT: i32 = 130;

/// A token that is cancelled by the first signal. From here on signals do not kill the process; a
/// second one ends it with code 130, without draining.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::info!(signal = name, "shutting down");
        cancelled.cancel();
        let name = signals.next().await;
        tracing::warn!(signal = name, "shutting down at once");
        std::process::exit(IMPATIENT);
    });
    Ok(token)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
