//! A streaming standby, synchronous if wanted, and its promotion.

use std::time::Duration;

use super::binaries::run;
use super::{Postgres, WITHIN, blocking, connect};
use crate::eventually::eventually;

/// A commit that waits for no standby takes a fraction of this, also on a busy machine.
const COMMITS_WITHIN: Duration = Duration::from_millis(500);

impl Postgres {
    /// Starts a hot standby of this server, with its own directory and port, and waits until it
    /// streams.
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

    /// From now on the server acknowledges a commit only after this standby has it. So a promoted
    /// standby has every acknowledged commit. Returns once a commit was seen to wait.
    pub async fn wait_for_standby(&self, standby: &Self) {
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.execute("SELECT pg_reload_conf()").await;
        // The server's processes read the new setting one after the other, so only an observed
        // commit shows that it applies.
        eventually("a commit waits for the standby", WITHIN, async || {
            standby.freeze().await;
            let waits = self.commit_waits().await;
            standby.thaw();
            if waits { Ok(()) } else { Err("it does not".to_owned()) }
        })
        .await;
    }

    /// Whether a commit takes longer than one that waits for no standby. It continues by itself.
    async fn commit_waits(&self) -> bool {
        let client = connect(&self.url("postgres")).await;
        let write = "SELECT pg_logical_emit_message(true, 'testkit', 'does this wait?')";
        let commit = tokio::spawn(async move { client.batch_execute(write).await });
        tokio::time::timeout(COMMITS_WITHIN, commit).await.is_err()
    }

    /// Promotes a standby to a primary, and waits until it accepts writes.
    pub async fn promote(&mut self) {
        let seconds = WITHIN.as_secs();
        let promoted = self.execute(&format!("SELECT pg_promote(true, {seconds}), pg_is_in_recovery()")).await;
        assert_eq!(promoted, [["t", "f"].map(|value| Some(value.to_owned()))], "{}", self.log());
    }
}
