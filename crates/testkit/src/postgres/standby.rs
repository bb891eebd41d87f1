//! A streaming standby, one that is waited for, and its promotion.

use std::time::Duration;

use super::binaries::run;
use super::{Postgres, WITHIN, blocking, connect};
use crate::eventually::eventually;

/// A commit that waits for nobody takes a small part of this, also on a busy machine.
const COMMITS_WITHIN: Duration = Duration::from_millis(500);

impl Postgres {
    /// Starts a hot standby of this server, in a directory and on a port of its own, and waits
    /// until it streams.
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

    /// From now on a commit is acknowledged only after this standby has it: promoted, it has all
    /// that was acknowledged. Returns once a commit was seen to wait.
    pub async fn wait_for_standby(&self, standby: &Self) {
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        self.execute("SELECT pg_reload_conf()").await;
        // The server's processes hear of it one after the other, so that only what happens shows
        // that all have.
        eventually("a commit waits for the standby", WITHIN, async || {
            standby.freeze().await;
            let waits = self.commit_waits().await;
            standby.thaw();
            if waits { Ok(()) } else { Err("it does not".to_owned()) }
        })
        .await;
    }

    /// Whether a commit takes longer than any that waits for nobody; it goes on by itself.
    async fn commit_waits(&self) -> bool {
        let client = connect(&self.url("postgres")).await;
        let write = "SELECT pg_logical_emit_message(true, 'testkit', 'is this waited for?')";
        let commit = tokio::spawn(async move { client.batch_execute(write).await });
        tokio::time::timeout(COMMITS_WITHIN, commit).await.is_err()
    }

    /// Makes a primary of a standby, and waits until it can be written to.
    pub async fn promote(&mut self) {
        let seconds = WITHIN.as_secs();
        let promoted = self.execute(&format!("SELECT pg_promote(true, {seconds}), pg_is_in_recovery()")).await;
        assert_eq!(promoted, [["t", "f"].map(|value| Some(value.to_owned()))], "{}", self.log());
    }
}
