//! Reads the final state of every task over the API, after the drain.

use std::collections::BTreeMap;

use punctual_client::{EventPage, RunPage, Task, TaskPage};
use punctual_core::ids::TaskId;
use punctual_testkit::http::ApiClient;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::history::{Dumped, Recorder};

/// Tasks per page and events per page: the maximum of the API.
pub const PAGE: usize = 1_000;
/// The number of concurrent readers.
const READERS: usize = 8;

/// All tasks with their trails and runs.
pub async fn dump(api: &ApiClient, recorder: &Recorder) -> Vec<Dumped> {
    let tasks = tasks(api).await;
    let mut readers = JoinSet::new();
    let share = tasks.len().div_ceil(READERS).max(1);
    for some in tasks.chunks(share) {
        let (api, recorder, some) = (api.clone(), recorder.clone(), some.to_vec());
        readers.spawn(async move {
            let mut dumped = Vec::with_capacity(some.len());
            for task in some {
                let path = |of: &str| format!("/v1/tasks/{}/{of}?limit={PAGE}", task.task_id);
                let events: EventPage = page(&api, &path("events")).await;
                let runs: RunPage = page(&api, &path("runs")).await;
                assert!(events.next_cursor.is_none() && runs.next_cursor.is_none(), "a trail of over {PAGE} steps");
                dumped.push(Dumped::of(&task, events.items, runs.items, recorder.now()));
            }
            dumped
        });
    }
    readers.join_all().await.into_iter().flatten().collect()
}

/// How many tasks have not finished, counted on one page.
pub async fn unfinished(api: &ApiClient) -> usize {
    let path = format!("/v1/tasks?status=BLOCKED&status=PENDING&status=QUEUED&status=RUNNING&limit={PAGE}");
    page::<TaskPage>(api, &path).await.items.len()
}

async fn tasks(api: &ApiClient) -> Vec<Task> {
    // By id: if a task is listed twice, the later read is kept.
    let mut tasks: BTreeMap<TaskId, Task> = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page: TaskPage = page(api, &format!("/v1/tasks?limit={PAGE}{cursor}")).await;
        tasks.extend(page.items.into_iter().map(|task| (task.task_id, task)));
        match page.next_cursor {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return tasks.into_values().collect(),
        }
    }
}

/// The response to a `GET` of a path.
pub async fn page<T: DeserializeOwned>(api: &ApiClient, path: &str) -> T {
    let reply = api.get(path).await;
    assert_eq!(reply.status(), 200, "{reply}");
    serde_json::from_slice(reply.body()).unwrap_or_else(|error| panic!("{error}\n{reply}"))
}
