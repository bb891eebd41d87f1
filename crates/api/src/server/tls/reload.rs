//! Reads a node's TLS identity again when its files change.
//!
//! The files are compared by what is in them, so it does not matter how they were replaced. A
//! change is judged when two readings in a row agree: a certificate and its key are two files, and
//! between the two writes they do not match. SIGHUP has them judged at once.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::TlsIdentity;
use super::files::{TlsFault, TlsTexts};
use crate::metrics::ConnectionMetrics;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes over what changes in the files of an identity. One per process.
pub struct TlsReloader {
    identity: Arc<TlsIdentity>,
    metrics: ConnectionMetrics,
    /// What the last reading found.
    last_read: [u8; 32],
    /// What was last judged.
    judged: [u8; 32],
}

/// What a reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// Nothing is new.
    Unchanged,
    /// There is something new, which the next reading must find again.
    Changing,
    /// New connections get the new identity.
    Taken,
    /// The new files are bad. The old identity stays.
    Refused,
}

impl TlsReloader {
    /// Watches the files that `identity` was loaded from.
    pub fn new(identity: Arc<TlsIdentity>, metrics: ConnectionMetrics) -> Self {
        metrics.certificate_expires(identity.expires_at());
        let read = digest(&identity.files.read());
        Self { identity, metrics, last_read: read, judged: read }
    }

    /// Reads the files every second, and at a SIGHUP, until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut hangups = signal(SignalKind::hangup())
            .inspect_err(|error| tracing::warn!(%error, "cannot wait for SIGHUP; the TLS files are still watched"))
            .ok();
        loop {
            let hangup = async {
                match &mut hangups {
                    Some(hangups) => drop(hangups.recv().await),
                    None => std::future::pending().await,
                }
            };
            let at_once = tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => false,
                () = hangup => true,
            };
            // Reading may block for long on a network drive.
            let reading = tokio::task::spawn_blocking(move || {
                self.run_once(at_once);
                self
            });
            match reading.await {
                Ok(reloader) => self = reloader,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime ends.
                Err(_) => return,
            }
        }
    }

    /// Reads the files once. Judges what is new `at_once`, or when the last reading has found it,
    /// too.
    pub fn run_once(&mut self, at_once: bool) -> ReloadOutcome {
        let identity = Arc::clone(&self.identity);
        let reading = identity.files.read();
        let read = digest(&reading);
        let was_read_before = std::mem::replace(&mut self.last_read, read) == read;
        if !at_once && read == self.judged {
            return ReloadOutcome::Unchanged;
        }
        if !at_once && !was_read_before {
            return ReloadOutcome::Changing;
        }
        self.judged = read;
        match reading.and_then(|texts| texts.material(identity.files.client_auth)) {
            Ok(material) => {
                self.metrics.certificate_expires(material.expires_at);
                *identity.current.write() = Arc::new(material);
                self.metrics.reloaded("taken");
                tracing::info!("the TLS files were read again; new connections use them");
                ReloadOutcome::Taken
            }
            Err(fault) => {
                self.metrics.reloaded("refused");
                tracing::error!(%fault, "the new TLS files cannot be used; the old certificate stays in use");
                ReloadOutcome::Refused
            }
        }
    }
}

/// What distinguishes a reading from others, a failed one from other failures.
fn digest(reading: &Result<TlsTexts<'_>, TlsFault>) -> [u8; 32] {
    match reading {
        Ok(texts) => texts.digest(),
        Err(fault) => Sha256::digest(fault.to_string()).into(),
    }
}
