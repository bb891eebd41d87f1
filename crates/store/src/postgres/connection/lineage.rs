//! Which server was promoted last: an older primary that comes back must not be written to.
//!
//! Every promotion begins a new timeline, a number that only grows. All sessions of one
//! [`Address`](super::Address) share the newest timeline that was seen, and refuse a server behind
//! it.

use parking_lot::Mutex;

/// The newest primary that was seen (see the module).
#[derive(Debug, Default)]
pub(crate) struct Lineage(Mutex<Option<Primary>>);

/// A primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Primary {
    /// The system identifier, which it shares only with its standbys.
    pub system: i64,
    pub timeline: i64,
}

impl Lineage {
    /// Fails with the reason if a server must not be written to.
    pub(crate) fn admit(&self, server: Primary) -> Result<(), String> {
        let mut newest = self.0.lock();
        match *newest {
            Some(known) if known.system != server.system => Err(format!(
                "a different PostgreSQL answers at this address than before (its system identifier is {}, not {})",
                server.system, known.system
            )),
            Some(known) if known.timeline > server.timeline => Err(format!(
                "the PostgreSQL that answers was replaced by a newer primary (its timeline is {}, the newest is {}): it must \
                 not be written to; stop it, or make it a standby of the newer one",
                server.timeline, known.timeline
            )),
            _ => {
                *newest = Some(server);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_admitted_unless_a_newer_one_was_seen() {
        let lineage = Lineage::default();
        let server = |system, timeline| Primary { system, timeline };
        assert!(lineage.admit(server(7, 1)).is_ok() && lineage.admit(server(7, 1)).is_ok());
        assert!(lineage.admit(server(7, 3)).is_ok());
        assert!(lineage.admit(server(7, 1)).unwrap_err().contains("its timeline is 1, the newest is 3"));
        assert!(lineage.admit(server(8, 9)).unwrap_err().contains("a different PostgreSQL answers"));
        assert!(lineage.admit(server(7, 3)).is_ok());
    }
}
