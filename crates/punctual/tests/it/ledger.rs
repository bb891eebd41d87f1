//! A worker that records its work in the ledger: killed at the worst moments, its effect happens
//! once.
//!
//! The worker is `examples/exactly_once.rs` of the client crate, unchanged, in a process of its
//! own: this test program, which by its environment runs only [`worker_process`]. The test controls
//! where the worker is when it is killed: by a lock in the database that it waits for, and by a
//! relay that stops passing bytes to the server.

use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Process;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Client;

use crate::it::enqueue::Site;
use crate::it::world::SOON;

#[path = "../../../client/examples/exactly_once.rs"]
#[allow(dead_code, reason = "its main is that of the example")]
mod exactly_once;

/// The environment variables that name the server and the database of the worker process.
const SERVER: &str = "LEDGER_WORKER_SERVER";
const DATABASE: &str = "LEDGER_WORKER_DATABASE";

/// The worker process's whole life. As an ordinary test it has no server and does nothing.
#[tokio::test]
async fn worker_process() {
    let Ok(server) = std::env::var(SERVER) else { return };
    let database = std::env::var(DATABASE).expect("a setting");
    // The runner has printed the test's name without a newline.
    writeln!(std::io::stdout(), "\nworks").expect("stdout is read");
    exactly_once::work(&server, &database).await.expect("it works until it is killed");
}

fn start_worker(server: &str, site: &Site) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its program"));
    let (_, module) = module_path!().split_once("::").expect("a module of the test program");
    command.args([&format!("{module}::worker_process"), "--exact", "--nocapture", "--test-threads=1"]);
    command.env(SERVER, server).env(DATABASE, &site.url);
    Process::spawn(command)
}

/// A site with two accounts, and a transfer of 30 between them whose lease lasts a second.
async fn transfer() -> (Site, Client, String) {
    let site = Site::start(1).await;
    let client = site.client().await;
    let accounts = "CREATE TABLE accounts (name text PRIMARY KEY, balance bigint NOT NULL);
        INSERT INTO accounts VALUES ('ada', 100), ('grace', 0)";
    client.batch_execute(accounts).await.expect("the accounts are made");
    let policy = json!({"max_retries": 9, "backoff": "fixed", "backoff_seconds": 0, "jitter": "none"});
    let payload = json!({"from": "ada", "to": "grace", "amount": 30});
    // A run that is not settled within a second is lost, and its task is handed out again.
    let task = json!({"type": "transfer", "payload": payload, "retry_policy": policy, "timeout_seconds": 1});
    let id = site.caller(0).submit_id(task).await;
    (site, client, id)
}

async fn balances(client: &Client) -> Vec<i64> {
    let rows = client.query("SELECT balance FROM accounts ORDER BY name", &[]).await.expect("the accounts are read");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn entries(client: &Client) -> i64 {
    let count = "SELECT count(*) FROM transfers_done";
    client.query_one(count, &[]).await.map_or(0, |row| row.get(0))
}

/// Waits until a session waits for a lock: the worker, in its transaction, with the entry written.
async fn until_in_the_transaction(client: &Client) {
    eventually("the worker is in its transaction", SOON, async || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE accounts%'";
        let row = client.query_one(waiting, &[]).await.expect("the query runs");
        if row.get::<_, i64>(0) == 1 { Ok(()) } else { Err("no session waits".to_owned()) }
    })
    .await;
}

#[tokio::test]
async fn a_worker_killed_before_its_commit_has_no_effect() {
    let (site, client, id) = transfer().await;
    let mut holder = site.client().await;
    let lock = holder.transaction().await.expect("a transaction begins");
    lock.execute("SELECT FROM accounts FOR UPDATE", &[]).await.expect("the accounts are locked");
    let mut worker = start_worker(site.nodes[0].url(), &site);
    until_in_the_transaction(&client).await;
    worker.kill();
    lock.rollback().await.expect("the lock is released");
    let _another = start_worker(site.nodes[0].url(), &site);
    let done = site.caller(0).until(&id, "COMPLETED").await;
    assert_eq!(done["retry_count"], 1);
    assert_eq!((balances(&client).await, entries(&client).await), (vec![70, 30], 1));
}

#[tokio::test]
async fn a_worker_killed_after_its_commit_has_one_effect() {
    let (site, client, id) = transfer().await;
    let mut holder = site.client().await;
    let lock = holder.transaction().await.expect("a transaction begins");
    lock.execute("SELECT FROM accounts FOR UPDATE", &[]).await.expect("the accounts are locked");
    let relay = Relay::to(site.nodes[0].address()).await;
    let mut worker = start_worker(&relay.url, &site);
    until_in_the_transaction(&client).await;
    // From here on the worker can commit, but cannot report.
    relay.close();
    lock.rollback().await.expect("the lock is released");
    eventually("the transfer is committed", SOON, async || {
        let seen = (balances(&client).await, entries(&client).await);
        if seen == (vec![70, 30], 1) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    worker.kill();
    assert_ne!(site.caller(0).task(&id).await["status"], "COMPLETED", "the completion got through");
    let mut another = start_worker(site.nodes[0].url(), &site);
    another.line(&format!("{id} Already"), SOON).await;
    let done = site.caller(0).until(&id, "COMPLETED").await;
    assert_eq!(done["retry_count"], 1);
    assert_eq!((balances(&client).await, entries(&client).await), (vec![70, 30], 1));
}

/// Two workers believe that they hold the same task: the second waits for the first, and does
/// nothing.
#[tokio::test]
async fn two_workers_with_one_task_have_one_effect() {
    let (site, client, id) = transfer().await;
    let mut holder = site.client().await;
    let lock = holder.transaction().await.expect("a transaction begins");
    lock.execute("SELECT FROM accounts FOR UPDATE", &[]).await.expect("the accounts are locked");
    let mut workers = [start_worker(site.nodes[0].url(), &site), start_worker(site.nodes[0].url(), &site)];
    until_in_the_transaction(&client).await;
    // Its lease ends, the other worker gets the task and waits for the entry.
    eventually("both workers wait for a lock", SOON, async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let row = client.query_one(waiting, &[]).await.expect("the query runs");
        if row.get::<_, i64>(0) >= 2 { Ok(()) } else { Err("fewer than two wait".to_owned()) }
    })
    .await;
    lock.rollback().await.expect("the lock is released");
    site.caller(0).until(&id, "COMPLETED").await;
    let printed = eventually("both workers have printed their results", SOON, async || {
        let printed: Vec<String> = workers.iter_mut().map(|worker| worker.stdout()).collect();
        let all = printed.join("");
        if all.contains("First") && all.contains("Already") { Ok(all) } else { Err(all) }
    })
    .await;
    assert_eq!(printed.matches("First").count(), 1, "{printed}");
    assert_eq!((balances(&client).await, entries(&client).await), (vec![70, 30], 1));
}

/// Passes bytes on to a server until it is closed; from then on it drops them.
struct Relay {
    url: String,
    is_closed: Arc<AtomicBool>,
}

impl Relay {
    async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let (server, is_closed) = (server.to_owned(), Arc::new(AtomicBool::new(false)));
        let closed = Arc::clone(&is_closed);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&server).await else { return };
                let ((mut near_read, mut near_write), (mut far_read, mut far_write)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut far_read, &mut near_write).await });
                let closed = Arc::clone(&closed);
                tokio::spawn(async move {
                    let mut bytes = [0; 4_096];
                    while let Ok(length @ 1..) = near_read.read(&mut bytes).await {
                        if !closed.load(Ordering::SeqCst) && far_write.write_all(&bytes[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, is_closed }
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}
