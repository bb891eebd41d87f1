//! A streaming standby, and its promotion.

use super::binaries::run;
use super::{Postgres, WITHIN, blocking};
use crate::eventually::eventually;

impl Postgres {
    /// Starts a hot standby of this server, in a directory and on a port of its own, and waits until it streams.
    pub async fn standby(&self) -> Self {
        let (binaries, files) = (self.binaries.clone(), self.files);
        let primary = format!("host=127.0.0.1 port={} user=postgres", self.port());
        let mut standby = blocking(move || {
            let standby = Self::home(binaries, files);
            let mut copy = standby.binaries.command("pg_basebackup");
            copy.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
            run(copy.arg("--dbname").arg(primary).arg("--pgdata").arg(standby.data()));
            standby.configure();
            standby
        })
        .await;
        standby.start_again().await;
        eventually("the standby streams", WITHIN, async || {
            let status = standby.execute("SELECT status FROM pg_stat_wal_receiver").await;
            if status == [[Some("streaming".to_owned())]] { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
        standby
    }

    /// Makes a primary of a standby, and waits until it can be written to.
    pub async fn promote(&mut self) {
        let seconds = WITHIN.as_secs();
        let promoted = self.execute(&format!("SELECT pg_promote(true, {seconds}), pg_is_in_recovery()")).await;
        assert_eq!(promoted, [["t", "f"].map(|value| Some(value.to_owned()))], "{}", self.log());
    }
}
