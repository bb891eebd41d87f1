//! A broker in memory: the least that keeps the contract. Tests of the dispatcher and the worker
//! use it; a node without a broker hands runs over directly.
//!
//! The dispatcher publishes, the worker subscribes. One lock over small maps. Nothing survives the
//! process, and nothing has to: the store knows which tasks are queued, and the reaper gives them
//! back. A message counts against its pool's capacity from `publish` until `ack`, so memory is
//! bounded whatever the subscribers do. Tenants are served round robin: however much one has
//! published, it delays another's message by one delivery.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::broker::{Broker, BrokerError, Delivery, Message, Subscription};
use tokio::sync::Notify;

/// A broker in memory (see the module). Cheap to clone; clones are the same broker.
#[derive(Clone)]
pub struct MemoryBroker {
    shared: Arc<Shared>,
}

impl MemoryBroker {
    /// A broker that holds at most `capacity_per_pool` messages for each pool.
    pub fn new(capacity_per_pool: usize) -> Self {
        let shared = Shared {
            capacity: capacity_per_pool,
            state: Mutex::default(),
            arrived: Notify::new(),
            left: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn publish(&self, messages: Vec<Message>) -> Result<(), BrokerError> {
        self.shared.state.lock().publish(messages, self.shared.capacity)?;
        self.shared.arrived.notify_waiters();
        Ok(())
    }

    async fn subscribe(&self, pool: &str, prefetch: usize) -> Result<Box<dyn Subscription>, BrokerError> {
        let mut state = self.shared.state.lock();
        state.open()?;
        let subscriber = state.next_number();
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemorySubscription { shared, pool: pool.into(), subscriber, prefetch: prefetch.max(1) }))
    }

    async fn depth(&self, pool: &str) -> Result<usize, BrokerError> {
        let state = self.shared.state.lock();
        state.open()?;
        Ok(state.pools.get(pool).map_or(0, |pool| pool.waiting.len()))
    }

    async fn room(&self, pool: &str) -> Result<usize, BrokerError> {
        let state = self.shared.state.lock();
        state.open()?;
        Ok(state.room(pool, self.shared.capacity))
    }

    async fn wait_for_room(&self, pool: &str) {
        loop {
            // Made before the check, so that a message that leaves between check and wait wakes it.
            let left = self.shared.left.notified();
            {
                let state = self.shared.state.lock();
                if state.closed || state.room(pool, self.shared.capacity) > 0 {
                    return;
                }
            }
            left.await;
        }
    }

    async fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.arrived.notify_waiters();
        self.shared.left.notify_waiters();
    }
}

struct MemorySubscription {
    shared: Arc<Shared>,
    pool: Arc<str>,
    subscriber: u64,
    prefetch: usize,
}

#[async_trait]
impl Subscription for MemorySubscription {
    async fn recv(&mut self) -> Option<Delivery> {
        loop {
            let arrived = self.shared.arrived.notified();
            let taken = {
                let mut state = self.shared.state.lock();
                if state.closed {
                    return None;
                }
                state.pools.get_mut(&*self.pool).and_then(|pool| pool.take(self.subscriber, self.prefetch))
            };
            // No await between taking and returning: a dropped future has taken nothing.
            if let Some((order, message)) = taken {
                let (shared, pool, subscriber) = (Arc::clone(&self.shared), Arc::clone(&self.pool), self.subscriber);
                return Some(Delivery::new(message, move |acknowledged| {
                    shared.settle(&pool, subscriber, order, acknowledged);
                }));
            }
            arrived.await;
        }
    }
}

impl Drop for MemorySubscription {
    fn drop(&mut self) {
        if let Some(pool) = self.shared.state.lock().pools.get_mut(&*self.pool) {
            pool.forget(self.subscriber);
        }
        self.shared.arrived.notify_waiters();
    }
}

struct Shared {
    capacity: usize,
    state: Mutex<BrokerState>,
    /// A subscriber may take a message that it could not take before.
    arrived: Notify,
    /// A message was acknowledged.
    left: Notify,
}

impl Shared {
    fn settle(&self, pool: &str, subscriber: u64, order: DeliveryOrder, acknowledged: bool) {
        if let Some(pool) = self.state.lock().pools.get_mut(pool) {
            pool.settle(subscriber, order, acknowledged);
        }
        // Either way the subscriber may take one more.
        self.arrived.notify_waiters();
        if acknowledged {
            self.left.notify_waiters();
        }
    }
}

#[derive(Default)]
struct BrokerState {
    pools: HashMap<String, Pool>,
    last_number: u64,
    closed: bool,
}

impl BrokerState {
    fn open(&self) -> Result<(), BrokerError> {
        if self.closed { Err(BrokerError::Unavailable("it was closed".to_owned())) } else { Ok(()) }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn room(&self, pool: &str, capacity: usize) -> usize {
        capacity.saturating_sub(self.pools.get(pool).map_or(0, Pool::size))
    }

    fn publish(&mut self, messages: Vec<Message>, capacity: usize) -> Result<(), BrokerError> {
        self.open()?;
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        for message in &messages {
            *wanted.entry(&message.pool).or_default() += 1;
        }
        if wanted.iter().any(|(pool, count)| *count > self.room(pool, capacity)) {
            return Err(BrokerError::Full);
        }
        for message in messages {
            let number = self.next_number();
            match self.pools.get_mut(&message.pool) {
                Some(pool) => pool.put(number, message),
                None => self.pools.entry(message.pool.clone()).or_default().put(number, message),
            }
        }
        Ok(())
    }
}

/// The order of delivery: urgency, then publication. A message that is delivered again keeps its
/// own.
type DeliveryOrder = (u8, u64);

#[derive(Default)]
struct Pool {
    waiting: WaitingMessages,
    /// The messages that each subscriber got and has not acknowledged.
    taken: HashMap<u64, HashMap<DeliveryOrder, Message>>,
}

impl Pool {
    fn size(&self) -> usize {
        self.waiting.len() + self.taken.values().map(HashMap::len).sum::<usize>()
    }

    fn put(&mut self, number: u64, message: Message) {
        self.waiting.put((u8::MAX - message.priority, number), message);
    }

    fn take(&mut self, subscriber: u64, prefetch: usize) -> Option<(DeliveryOrder, Message)> {
        let taken = self.taken.entry(subscriber).or_default();
        if taken.len() >= prefetch {
            return None;
        }
        let (order, message) = self.waiting.take_next()?;
        taken.insert(order, message.clone());
        Some((order, message))
    }

    fn settle(&mut self, subscriber: u64, order: DeliveryOrder, acknowledged: bool) {
        match self.taken.get_mut(&subscriber) {
            Some(taken) => {
                if let Some(message) = taken.remove(&order).filter(|_| !acknowledged) {
                    self.waiting.put(order, message);
                }
            }
            // The subscription is gone, so the message waits again or another subscriber has it. If
            // it waits, it is removed.
            None if acknowledged => self.waiting.remove(order),
            None => {}
        }
    }

    fn forget(&mut self, subscriber: u64) {
        for (order, message) in self.taken.remove(&subscriber).unwrap_or_default() {
            self.waiting.put(order, message);
        }
    }
}

/// Messages that wait, by tenant.
#[derive(Default)]
struct WaitingMessages {
    by_tenant: HashMap<String, BTreeMap<DeliveryOrder, Message>>,
    /// The tenants that have messages, in the order in which they are served.
    round: VecDeque<String>,
    count: usize,
}

impl WaitingMessages {
    fn len(&self) -> usize {
        self.count
    }

    fn put(&mut self, order: DeliveryOrder, message: Message) {
        self.count += 1;
        if let Some(messages) = self.by_tenant.get_mut(&message.tenant) {
            messages.insert(order, message);
            return;
        }
        self.round.push_back(message.tenant.clone());
        self.by_tenant.insert(message.tenant.clone(), BTreeMap::from([(order, message)]));
    }

    /// The most urgent message of the tenant that is served next.
    fn take_next(&mut self) -> Option<(DeliveryOrder, Message)> {
        let tenant = self.round.pop_front()?;
        let messages = self.by_tenant.get_mut(&tenant)?;
        let next = messages.pop_first();
        self.count -= 1;
        if messages.is_empty() {
            self.by_tenant.remove(&tenant);
        } else {
            self.round.push_back(tenant);
        }
        next
    }

    fn remove(&mut self, order: DeliveryOrder) {
        let holds = |messages: &BTreeMap<DeliveryOrder, Message>| messages.contains_key(&order);
        let found = self.by_tenant.iter_mut().find(|(_, messages)| holds(messages));
        let Some((tenant, messages)) = found else { return };
        messages.remove(&order);
        self.count -= 1;
        if messages.is_empty() {
            let tenant = tenant.clone();
            self.by_tenant.remove(&tenant);
            self.round.retain(|other| *other != tenant);
        }
    }
}

#[cfg(test)]
mod tests;
