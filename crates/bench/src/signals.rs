//! SIGINT, SIGTERM and SIGHUP end only the measurement: its servers and database are still removed.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a measurement. While this exists they do not kill the process.
pub struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    /// None if the process ignores SIGHUP, as under `nohup`.
    hangup: Option<Signal>,
}

impl EndSignals {
    /// Listens from now on.
    pub fn listen() -> std::io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = if ignores_hangup(&status) { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// The name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Whether a process with this `/proc/PID/status` ignores SIGHUP, the lowest bit of the mask.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen() {
        assert!(ignores_hangup("Name:\tpunctual\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"));
        assert!(!ignores_hangup("Name:\tpunctual\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!ignores_hangup(""));
    }
}
