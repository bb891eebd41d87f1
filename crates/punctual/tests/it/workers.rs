//! Pull workers beside servers that are killed: each polls one server, whichever process that
//! currently is, and settles with any server that answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_testkit::http::ApiClient;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::it::world::{Caller, SOON, array, id_of, worker_id};

/// How long after a refused poll a worker polls again.
const PAUSE: Duration = Duration::from_millis(10);

/// Longer than any run. A task whose lease was lost with its response runs again after this time.
const LEASE_SECONDS: u64 = 5;

/// Workers for tasks of the type `u`. If a task's payload names a sink, a run calls it with that
/// payload, so one sink sees webhooks and pulled runs.
pub struct Workers {
    servers: Servers,
    running: JoinSet<()>,
}

impl Workers {
    /// One worker at each of these servers, which asks for this many tasks at a time.
    pub fn start(callers: Vec<Caller>, max_tasks: usize) -> Self {
        let count = callers.len();
        let servers = Servers(Arc::new(Mutex::new(callers)));
        let running = (0..count).map(|number| work(servers.clone(), number, max_tasks)).collect();
        Self { servers, running }
    }

    /// The worker with this number uses that server from now on.
    pub fn moved(&self, number: usize, caller: Caller) {
        self.servers.0.lock().unwrap_or_else(PoisonError::into_inner)[number] = caller;
    }

    /// Ends all workers. Fails if one of them has failed.
    pub async fn end(mut self) {
        self.running.abort_all();
        while let Some(ended) = self.running.join_next().await {
            assert!(ended.is_err_and(|error| error.is_cancelled()), "a worker has failed");
        }
    }
}

async fn work(servers: Servers, number: usize, max_tasks: usize) {
    let (name, sinks) = (worker_id(), ApiClient::new(""));
    loop {
        let wanted = json!({
            "worker_id": name,
            "types": ["u"],
            "max_tasks": max_tasks,
            "wait_seconds": 20,
            "lease_seconds": LEASE_SECONDS,
        });
        let mut runs = JoinSet::new();
        for lease in servers.lease(number, &wanted).await {
            let (servers, sinks) = (servers.clone(), sinks.clone());
            runs.spawn(async move {
                let payload = &lease["task"]["payload"];
                if let Some(sink) = payload["sink"].as_str() {
                    assert_eq!(sinks.post(sink, payload).await.status(), 200);
                }
                servers.complete(number, &lease).await;
            });
        }
        runs.join_all().await;
    }
}

/// Where the servers are at present.
#[derive(Clone)]
struct Servers(Arc<Mutex<Vec<Caller>>>);

impl Servers {
    /// The server with this number, modulo their count.
    fn caller(&self, number: usize) -> Caller {
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers[number % callers.len()].clone()
    }

    /// The leases that server grants; none while it does not answer.
    async fn lease(&self, number: usize, wanted: &Value) -> Vec<Value> {
        match self.caller(number).api.call("POST", "/v1/leases").json(wanted).try_send().await {
            Ok(answer) if answer.status() == 200 => array(&answer.expect(200)["leases"]),
            _ => {
                tokio::time::sleep(PAUSE).await;
                Vec::new()
            }
        }
    }

    /// Completes a run there, or at the next server that answers.
    async fn complete(&self, number: usize, lease: &Value) {
        let path = format!("/v1/tasks/{}/complete", id_of(&lease["task"]));
        let begun = Instant::now();
        for number in number.. {
            let report = self.caller(number).api.call("POST", &path).json(&json!({"token": lease["token"]}));
            let seen = match report.try_send().await {
                Ok(answer) if answer.status() == 200 => return,
                Ok(answer) => answer.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(begun.elapsed() < SOON, "no server accepts the outcome: {seen}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
