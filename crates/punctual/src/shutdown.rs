//! SIGTERM and SIGINT: the first signal shuts the node down, the second ends it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit code after a second signal: that of a shell after SIGINT.
const SECOND_SIGNAL_EXIT_CODE: i32 = 130;

/// Returns a token that the first signal cancels. A second signal ends the process with code 130,
/// without draining.
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
        tracing::warn!(signal = name, "ending at once, without draining");
        std::process::exit(SECOND_SIGNAL_EXIT_CODE);
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
