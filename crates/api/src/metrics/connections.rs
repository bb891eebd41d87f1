//! What the servers of a process count of their connections.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{OutcomeLabel, Registrar};

/// The metrics of connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    refused: Family<RefusalLabel, Counter>,
    handshakes: Family<OutcomeLabel, Counter>,
    reloads: Family<OutcomeLabel, Counter>,
    /// A family, so that it can be absent without TLS.
    certificate_expiry: Family<[(&'static str, &'static str); 0], Gauge<f64, AtomicU64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    reason: &'static str,
}

impl ConnectionMetrics {
    pub(super) fn register(register: &mut Registrar<'_>) -> Self {
        let metrics = Self {
            refused: register.metric("punctual_connections_refused", "Connections closed at once, by reason"),
            handshakes: register.metric("punctual_tls_handshakes", "TLS handshakes, by outcome"),
            reloads: register.metric("punctual_tls_reloads", "Changes of the TLS files, by outcome"),
            certificate_expiry: register.seconds(
                "punctual_tls_certificate_expiry",
                "When the certificate of this node expires, in seconds since 1970; absent without TLS",
                Family::default(),
            ),
        };
        // An alert on a rate needs the zero before the first one.
        drop(metrics.refused.get_or_create(&RefusalLabel { reason: "address" }));
        drop(metrics.reloads.get_or_create(&OutcomeLabel { outcome: "refused" }));
        metrics
    }

    /// Counts a connection that was closed at once, for one of a fixed set of reasons.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusalLabel { reason }).inc();
    }

    /// Counts a handshake with `outcome`, one of a fixed set of words.
    pub(crate) fn handshake(&self, outcome: &'static str) {
        self.handshakes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a change of the TLS files with `outcome`, one of a fixed set of words.
    pub(crate) fn reloaded(&self, outcome: &'static str) {
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Sets when the certificate of this node expires, in seconds since 1970.
    pub(crate) fn certificate_expires(&self, at: u64) {
        #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 stay below 2^53")]
        self.certificate_expiry.get_or_create(&[]).set(at as f64);
    }
}
