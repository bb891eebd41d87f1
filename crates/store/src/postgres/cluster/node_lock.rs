//! The lock by which other nodes see that the process of this node is connected.
//!
//! The session of the [`Listener`](super::Listener) holds it. PostgreSQL drops the lock when that
//! connection ends: at once when the process dies, not while it is frozen or its network is cut.
//! The registry says which nodes hold one. A node that has lost its lock but lives says so there,
//! over another connection, until it has the lock again.
//!
//! Invariant: the registry calls a lock held only if the backend of this node's own session has it.

use std::sync::atomic::{AtomicI32, Ordering};

use punctual_core::ids::NodeId;

use crate::columns::node_column;
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;

/// The backend of no session.
const NONE: i32 = 0;

/// The lock of this node (see the module).
pub(crate) struct NodeLock {
    node: NodeId,
    /// The backend whose session holds it.
    backend: AtomicI32,
}

impl NodeLock {
    /// The lock of this node, which it does not hold yet.
    pub(crate) fn new(node: NodeId) -> Self {
        Self { node, backend: AtomicI32::new(NONE) }
    }

    /// Takes the lock for as long as the session lasts, and records it. False if another session
    /// holds it: one of this node whose end the server has not noticed, or that of a node which
    /// declares this one gone.
    pub(crate) async fn take(&self, session: &Session) -> Result<bool, Fault> {
        let rows = session.query(Sql::NodeLock, &[&node_column(self.node)]).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        self.backend.store(row.get(0), Ordering::Release);
        self.record(session).await?;
        Ok(true)
    }

    /// Notes that the session of the lock has ended.
    pub(crate) fn lost(&self) {
        self.backend.store(NONE, Ordering::Release);
    }

    /// Records whether this node holds its lock. Changes nothing if the registry does not know the
    /// node yet.
    pub(crate) async fn record(&self, session: &Session) -> Result<(), Fault> {
        let backend = self.backend.load(Ordering::Acquire);
        session.execute(Sql::NodeSession, &[&node_column(self.node), &backend]).await?;
        Ok(())
    }
}
