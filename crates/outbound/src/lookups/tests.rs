//! Names that hang, and who is not affected.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Condvar;
use punctual_testkit::eventually::eventually;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;

/// Far longer than anything here takes, unless it waits for what hangs.
const SOON: Duration = Duration::from_secs(20);

/// Lookups that hang for names under `slow.example` until they are released.
struct Hanging(Arc<HangingNames>);

#[derive(Default)]
struct HangingNames {
    is_released: Mutex<bool>,
    released: Condvar,
    calls: AtomicUsize,
}

impl Hanging {
    fn new() -> (Self, Lookups) {
        let names = Arc::<HangingNames>::default();
        (Self(Arc::clone(&names)), Lookups::new(Arc::new(move |name| names.find(name))))
    }

    fn release(&self) {
        *self.0.is_released.lock() = true;
        self.0.released.notify_all();
    }

    fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }
}

/// A test that fails ends all the same: its runtime waits for the threads.
impl Drop for Hanging {
    fn drop(&mut self) {
        self.release();
    }
}

impl HangingNames {
    fn find(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if name.ends_with("slow.example") {
            self.released.wait_while(&mut self.is_released.lock(), |is_released| !*is_released);
        }
        if name.starts_with("nowhere") {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such name"));
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
    }
}

/// Asks for `names` names that hang, and waits until the tenant gets no further thread.
async fn hang(lookups: &Lookups, tenant: &str, names: usize, asked: &mut JoinSet<LookupResult>) {
    let before = lookups.shared.state.lock().asked.len();
    for number in 0..names {
        let (lookups, tenant) = (lookups.clone(), tenant.to_owned());
        asked.spawn(async move { lookups.find(&tenant, &format!("{number}.slow.example")).await });
    }
    eventually("the tenant has all the threads that it may have", SOON, async || {
        let state = lookups.shared.state.lock();
        let may_have_more = state.asked.len() < before + names || state.may_begin(tenant);
        if may_have_more { Err(state.threads.to_string()) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn hanging_names_leave_threads_to_other_work() {
    let (hanging, lookups) = Hanging::new();
    let mut asked = JoinSet::new();
    for tenant in 0..20 {
        hang(&lookups, &format!("slow {tenant}"), 100, &mut asked).await;
        let found = timeout(SOON, lookups.find("quick", "target.example")).await;
        assert!(found.expect("another tenant's name is looked up").is_ok());
    }
    let other = timeout(SOON, tokio::task::spawn_blocking(|| 7)).await;
    assert_eq!(other.expect("other work has threads").unwrap(), 7);
    hanging.release();
    while let Some(found) = asked.join_next().await {
        assert!(found.unwrap().is_ok());
    }
    assert_eq!(lookups.shared.state.lock().threads, 0, "every thread is given back");
}

#[tokio::test]
async fn a_name_that_hangs_has_one_thread() {
    let (hanging, lookups) = Hanging::new();
    let mut asked = JoinSet::new();
    for _ in 0..100 {
        let lookups = lookups.clone();
        asked.spawn(async move { lookups.find("t", "nowhere.slow.example").await });
    }
    eventually("all of them ask", SOON, async || {
        let state = lookups.shared.state.lock();
        let waiting = state.asked.values().map(|answer| answer.receiver_count()).sum::<usize>();
        if waiting == 100 && state.threads == 1 { Ok(()) } else { Err(waiting.to_string()) }
    })
    .await;
    let found = timeout(SOON, lookups.find("t", "target.example")).await;
    assert!(found.expect("its tenant's other names are looked up").is_ok());
    hanging.release();
    while let Some(found) = asked.join_next().await {
        assert_eq!(found.unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
    assert_eq!(hanging.calls(), 2);
}

#[tokio::test]
async fn a_name_that_nobody_waits_for_gets_no_thread() {
    let (hanging, lookups) = Hanging::new();
    let mut asked = JoinSet::new();
    hang(&lookups, "t", 100, &mut asked).await;
    let used = lookups.threads_of("t");
    asked.shutdown().await;
    eventually("what waits is forgotten", SOON, async || {
        let left = lookups.shared.state.lock().asked.len();
        if left == used { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    assert_eq!(lookups.threads_of("t"), used, "nobody can end what hangs");
    hanging.release();
    eventually("threads come back", SOON, async || {
        let left = lookups.shared.state.lock().asked.len();
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    assert_eq!(hanging.calls(), used);
}
