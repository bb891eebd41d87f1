//! A connection for transactions, one after the other.
//!
//! The partitions and the changes of queues each have one. Such transactions wait for those of
//! other nodes, so leases and presence, which must not wait, use other connections. A transaction
//! takes the session out: a call that is dropped drops the session with it, and the server rolls
//! back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use punctual_core::store::StoreError;
use tokio::sync::Mutex;

use super::Address;
use super::Session;
use super::shared::CallGuard;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;

/// The connection (see the module); it is made when it is needed.
pub(crate) struct ExclusiveConnection {
    address: Address,
    statements: &'static [Sql],
    place: Mutex<Option<Session>>,
    most: usize,
    busy: AtomicUsize,
    closed: AtomicBool,
}

impl ExclusiveConnection {
    /// A connection that begins with `session`, for which at most `most` calls wait. Prepares the
    /// statements: transactions send several at once, and one that has yet to be prepared would
    /// arrive after the commit.
    pub(crate) async fn open(
        address: &Address,
        statements: &'static [Sql],
        most: usize,
        session: Session,
    ) -> Result<Self, Fault> {
        session.prepare(statements).await?;
        let (place, busy, closed) = (Mutex::new(Some(session)), AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { address: address.clone(), statements, place, most, busy, closed })
    }

    /// Runs `work`, which begins a transaction and commits it.
    pub(crate) async fn transact<T>(
        &self,
        work: impl AsyncFnOnce(&Session) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let _busy = CallGuard::count(&self.busy);
        if self.busy.load(Ordering::Relaxed) > self.most {
            return Err(StoreError::Overloaded);
        }
        let mut place = self.place.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(Fault::Closed.to_store_error());
        }
        let session = match place.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => Session::open(&self.address, self.statements).await.map_err(|fault| fault.to_store_error())?,
        };
        let done = work(&session).await;
        let is_clean = match &done {
            Ok(_) => true,
            Err(fault) => !fault.breaks_connection() && session.run("ROLLBACK").await.is_ok(),
        };
        if is_clean {
            *place = Some(session);
        }
        done.map_err(|fault| fault.to_store_error())
    }

    /// Refuses further calls and drops the connection.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        *self.place.lock().await = None;
    }
}
