//! Looks up the addresses of hosts, a bounded number at a time.
//!
//! The system's lookup blocks a thread for as long as name servers are silent, and nobody can end
//! it. So it gets a part of the runtime's blocking threads only, and a tenant gets a share of
//! what is free there: names that hang take nothing from batches and forecasts, nor from the names
//! of other tenants. [`guard`](crate::guard) asks, and judges the addresses. Invariant: a name is
//! looked up once at a time for a tenant, so a name that hangs has one thread.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// The maximum number of threads that look up names: half of those that the runtime has for work
/// that blocks.
const THREADS: usize = 256;

/// A tenant may have as many threads as are free, divided by this. So the first tenant whose names
/// hang gets 51, the next 41, and twenty of them leave four threads to others.
const SHARE: usize = 4;

/// Finds the addresses of a name, and blocks meanwhile.
pub type BlockingLookup = Arc<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The addresses of a name, or why there are none.
pub type LookupResult = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Looks up names (see the module). Clones share the bounds.
#[derive(Clone)]
pub struct Lookups {
    shared: Arc<SharedLookups>,
}

struct SharedLookups {
    lookup: BlockingLookup,
    state: Mutex<LookupState>,
    /// Notified when a thread is free again.
    freed: Notify,
}

#[derive(Default)]
struct LookupState {
    /// What is looked up or waits for a thread, and who wants to know.
    asked: HashMap<LookupQuestion, Arc<LookupAnswer>>,
    /// The threads at work, in all and by tenant.
    threads: usize,
    by_tenant: HashMap<String, usize>,
}

type LookupAnswer = watch::Sender<Option<LookupResult>>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct LookupQuestion {
    tenant: String,
    name: String,
}

impl Lookups {
    /// By the system: its files and its name servers.
    pub fn by_system() -> Self {
        Self::new(Arc::new(|name| Ok((name, 0).to_socket_addrs()?.collect())))
    }

    /// By another way: the callers wait for threads of the runtime that run it.
    pub fn new(lookup: BlockingLookup) -> Self {
        Self { shared: Arc::new(SharedLookups { lookup, state: Mutex::default(), freed: Notify::new() }) }
    }

    /// The addresses of a name, looked up for a tenant. The caller may stop waiting.
    pub async fn find(&self, tenant: &str, name: &str) -> LookupResult {
        let question = LookupQuestion { tenant: tenant.to_owned(), name: name.to_owned() };
        let mut answer = self.ask(question);
        match answer.wait_for(Option::is_some).await {
            Ok(found) => found.clone().expect("invariant: it was waited for"),
            Err(_) => Err(Arc::new(io::Error::other("the lookup of its name was cancelled"))),
        }
    }

    /// How many threads look up names of a tenant now.
    pub fn threads_of(&self, tenant: &str) -> usize {
        self.shared.state.lock().by_tenant.get(tenant).copied().unwrap_or(0)
    }

    fn ask(&self, question: LookupQuestion) -> watch::Receiver<Option<LookupResult>> {
        let mut state = self.shared.state.lock();
        if let Some(answer) = state.asked.get(&question) {
            return answer.subscribe();
        }
        let (answer, receiver) = watch::channel(None);
        let answer = Arc::new(answer);
        state.asked.insert(question.clone(), Arc::clone(&answer));
        // A task of its own, since the first caller may be the first to give up.
        tokio::spawn(Arc::clone(&self.shared).answer(question, answer));
        receiver
    }
}

impl SharedLookups {
    async fn answer(self: Arc<Self>, question: LookupQuestion, answer: Arc<LookupAnswer>) {
        if !self.wait_for_thread(&question, &answer).await {
            return;
        }
        let (lookup, name) = (Arc::clone(&self.lookup), question.name.clone());
        let found = tokio::task::spawn_blocking(move || lookup(&name)).await;
        let found = found.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(Arc::new);
        self.state.lock().end(&question);
        self.freed.notify_waiters();
        answer.send_replace(Some(found));
    }

    /// Takes a thread as soon as there is one for the tenant. False if nobody wants to know the
    /// answer any more.
    async fn wait_for_thread(&self, question: &LookupQuestion, answer: &LookupAnswer) -> bool {
        loop {
            // Before the look, so that nothing that is freed after it is missed.
            let freed = self.freed.notified();
            {
                let mut state = self.state.lock();
                if answer.receiver_count() == 0 {
                    state.asked.remove(question);
                    return false;
                }
                if state.begin(&question.tenant) {
                    return true;
                }
            }
            tokio::select! {
                () = freed => {}
                () = answer.closed() => {}
            }
        }
    }
}

impl LookupState {
    /// Takes a thread for a tenant, if its share allows.
    fn begin(&mut self, tenant: &str) -> bool {
        let may = self.may_begin(tenant);
        if may {
            self.threads += 1;
            *self.by_tenant.entry(tenant.to_owned()).or_default() += 1;
        }
        may
    }

    fn may_begin(&self, tenant: &str) -> bool {
        let free = THREADS - self.threads;
        let used = self.by_tenant.get(tenant).copied().unwrap_or(0);
        used < free / SHARE || (used == 0 && free > 0)
    }

    /// Gives the thread of a question back, which is answered.
    fn end(&mut self, question: &LookupQuestion) {
        self.asked.remove(question);
        self.threads -= 1;
        if let Some(used) = self.by_tenant.get_mut(&question.tenant) {
            *used -= 1;
            if *used == 0 {
                self.by_tenant.remove(&question.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests;
