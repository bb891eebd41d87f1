//! The loops of a process, in groups that stop one after the other.
//!
//! The roles spawn into [`Groups`] and [`super::running`] stops it. Invariant: a group stops only
//! after every group before it has ended.

use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The groups, in the order in which they stop.
#[derive(Default)]
pub struct Groups {
    /// Claim tasks, and take in what makes tasks due.
    pub claims: Group,
    /// Owns partitions. When it stops, other nodes take them over.
    pub partitions: Group,
    /// Calls webhooks. It drains, and gives the rest back.
    pub webhooks: Group,
    /// Serves HTTP, so that pull workers can settle while webhooks drain.
    pub http: Group,
    /// Runs for the whole cluster, as long as this node may settle anything.
    pub cluster: Group,
}

impl Groups {
    /// Returns the name of the first loop that ends by itself.
    pub async fn first_end(&mut self) -> &'static str {
        tokio::select! {
            name = self.claims.first_end() => name,
            name = self.partitions.first_end() => name,
            name = self.webhooks.first_end() => name,
            name = self.http.first_end() => name,
            name = self.cluster.first_end() => name,
        }
    }

    /// Stops one group after the other.
    pub async fn stop(self) {
        for group in [self.claims, self.partitions, self.webhooks, self.http, self.cluster] {
            group.stop().await;
        }
    }
}

/// Loops that stop together.
#[derive(Default)]
pub struct Group {
    stop: CancellationToken,
    loops: JoinSet<()>,
    names: Vec<(Id, &'static str)>,
}

impl Group {
    /// Spawns a loop that ends when its token is cancelled.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(CancellationToken) -> F,
    ) {
        let handle = self.loops.spawn(run(self.stop.clone()));
        self.names.push((handle.id(), name));
    }

    /// Never returns for an empty group.
    async fn first_end(&mut self) -> &'static str {
        match self.loops.join_next_with_id().await {
            Some(Ok((id, ()))) => self.name(id),
            Some(Err(error)) => {
                log_panic(&error);
                self.name(error.id())
            }
            None => std::future::pending().await,
        }
    }

    fn name(&self, id: Id) -> &'static str {
        self.names.iter().find(|(known, _)| *known == id).map_or("unknown loop", |(_, name)| name)
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.loops.join_next().await {
            ended.unwrap_or_else(|error| log_panic(&error));
        }
    }
}

fn log_panic(error: &JoinError) {
    tracing::error!(error = %error, "a loop of this node panicked; the node shuts down");
}

#[cfg(test)]
impl Groups {
    /// The names of all loops, in the order in which their groups stop.
    pub fn names(&self) -> Vec<&'static str> {
        let groups = [&self.claims, &self.partitions, &self.webhooks, &self.http, &self.cluster];
        groups.into_iter().flat_map(|group| &group.names).map(|(_, name)| *name).collect()
    }
}
