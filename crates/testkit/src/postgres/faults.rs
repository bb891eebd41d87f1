//! The ways in which a database stops, and stops answering.

use std::process::Child;

use super::{Postgres, WITHIN, processes};
use crate::eventually::eventually;

impl Postgres {
    /// Ends every session, lets the transactions under way roll back, and stops (SIGINT).
    pub async fn stop_fast(&mut self) {
        self.stop("INT").await;
    }

    /// Ends as in a crash of its processes: it writes nothing more, and the next start recovers
    /// (SIGQUIT).
    pub async fn stop_immediately(&mut self) {
        self.stop("QUIT").await;
    }

    async fn stop(&mut self, signal: &str) {
        processes::signal(signal, &[self.postmaster().id()]);
        eventually("PostgreSQL stops", WITHIN, async || if self.has_ended() { Ok(()) } else { Err(self.log()) }).await;
        self.postmaster = None;
    }

    /// Kills all of its processes (SIGKILL), frozen or not, and waits until they are gone.
    pub async fn kill(&mut self) {
        self.postmaster();
        let data = self.data();
        eventually("the processes are gone", WITHIN, async || {
            let alive = processes::of(&data);
            processes::signal("KILL", &alive);
            if alive.is_empty() { Ok(()) } else { Err(format!("{alive:?}")) }
        })
        .await;
        let mut postmaster = self.postmaster.take().expect("invariant: it was there before");
        postmaster.wait().expect("invariant: a killed child ends");
    }

    /// Freezes all of its processes (SIGSTOP): connections stay open, the system even accepts new
    /// ones, and no client gets an answer. Thaw the server before stopping it; it can be killed
    /// while it is frozen.
    pub async fn freeze(&self) {
        // The postmaster first: once it is frozen it starts no further process.
        freeze_all(vec![self.postmaster().id()]).await;
        freeze_all(processes::of(&self.data())).await;
    }

    /// Lets a frozen server continue as if no time had passed (SIGCONT).
    pub fn thaw(&self) {
        self.postmaster();
        processes::signal("CONT", &processes::of(&self.data()));
    }

    fn postmaster(&self) -> &Child {
        self.postmaster.as_ref().expect("the server was started and not stopped")
    }
}

async fn freeze_all(pids: Vec<u32>) {
    processes::signal("STOP", &pids);
    // A signal is not immediate: a process is stopped only when the system reports it.
    eventually("the processes are frozen", WITHIN, async || {
        let moving: Vec<u32> = pids.iter().copied().filter(|pid| !processes::is_stopped(*pid)).collect();
        if moving.is_empty() { Ok(()) } else { Err(format!("{moving:?}")) }
    })
    .await;
}
