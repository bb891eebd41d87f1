//! Connections that many callers share, for single statements.
//!
//! Reads, leases and the registry use them. Every call is a statement or a few, each a transaction
//! of its own. So a call that is dropped leaves nothing behind, and many calls can be pipelined on
//! one connection. The next call reopens a lost connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use punctual_core::store::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Address;
use super::Session;
use crate::postgres::fault::Fault;

/// After a failed attempt to connect, calls get its error for this long before the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// A connection that is made when it is needed (see the module).
pub(crate) struct SharedConnection {
    address: Address,
    state: Mutex<ConnectionState>,
    busy: AtomicUsize,
}

#[derive(Default)]
struct ConnectionState {
    session: Option<Arc<Session>>,
    failed: Option<(Instant, StoreError)>,
}

impl SharedConnection {
    fn new(address: Address) -> Self {
        Self { address, state: Mutex::default(), busy: AtomicUsize::new(0) }
    }

    async fn session(&self) -> Result<Arc<Session>, Fault> {
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(session));
        }
        state.session = None;
        if let Some((_, why)) = state.failed.as_ref().filter(|(at, _)| at.elapsed() < RECONNECT_PAUSE) {
            return Err(Fault::NoConnection(why.clone()));
        }
        match Session::open(&self.address, &[]).await {
            Ok(session) => {
                let session = Arc::new(session);
                *state = ConnectionState { session: Some(Arc::clone(&session)), failed: None };
                Ok(session)
            }
            Err(fault) => {
                state.failed = Some((Instant::now(), fault.to_store_error()));
                Err(fault)
            }
        }
    }

    async fn forget(&self, broken: &Arc<Session>) {
        let mut state = self.state.lock().await;
        if state.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, broken)) {
            state.session = None;
        }
    }
}

/// A few connections to one server, and a bound on how many calls they serve at once.
pub(crate) struct SharedConnections {
    all: Vec<SharedConnection>,
    most: usize,
    busy: AtomicUsize,
    closed: AtomicBool,
}

impl SharedConnections {
    /// `count` connections for at most `most` calls at once.
    pub(crate) fn new(address: &Address, count: usize, most: usize) -> Self {
        let all = (0..count.max(1)).map(|_| SharedConnection::new(address.clone())).collect();
        Self { all, most, busy: AtomicUsize::new(0), closed: AtomicBool::new(false) }
    }

    /// Begins with these sessions, one for each connection.
    pub(crate) fn with_sessions(mut self, sessions: impl IntoIterator<Item = Session>) -> Self {
        for (connection, session) in self.all.iter_mut().zip(sessions) {
            connection.state.get_mut().session = Some(Arc::new(session));
        }
        self
    }

    /// Runs `work` on the least busy connection.
    pub(crate) async fn call<T>(&self, work: impl AsyncFnOnce(&Session) -> Result<T, Fault>) -> Result<T, StoreError> {
        let _all = CallGuard::count(&self.busy);
        if self.closed.load(Ordering::Acquire) {
            return Err(Fault::Closed.to_store_error());
        }
        if self.busy.load(Ordering::Relaxed) > self.most {
            return Err(StoreError::Overloaded);
        }
        let least = self.all.iter().min_by_key(|connection| connection.busy.load(Ordering::Relaxed));
        let connection = least.expect("invariant: there is at least one connection");
        let _one = CallGuard::count(&connection.busy);
        let session = connection.session().await.map_err(|fault| fault.to_store_error())?;
        let done = work(&session).await;
        if let Err(fault) = &done
            && fault.breaks_connection()
        {
            connection.forget(&session).await;
        }
        done.map_err(|fault| fault.to_store_error())
    }

    /// Refuses further calls and drops the connections.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for connection in &self.all {
            connection.state.lock().await.session = None;
        }
    }
}

/// Counts a call while it lasts, also when it is dropped.
pub(crate) struct CallGuard<'a>(&'a AtomicUsize);

impl<'a> CallGuard<'a> {
    pub(crate) fn count(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
