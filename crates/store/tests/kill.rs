//! Acknowledged writes survive `kill -9`, and the counts still fit the tasks.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use punctual_core::clock::ManualClock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Claim, Claimant, Filter, Store};
use punctual_core::trail::Actor;
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::fixtures::{START, TENANT, task};

/// The environment variable that makes the second test the process that is killed.
const DIRECTORY: &str = "PUNCTUAL_TEST_KILLED_DIRECTORY";

fn open(directory: &str) -> SqliteStore {
    let clock = Arc::new(ManualClock::new(START));
    SqliteStore::open(directory, clock, NodeId::random(), Options::default()).expect("the store opens")
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().to_str().expect("its path is UTF-8");
    let (mut stored, mut completed) = (BTreeSet::new(), BTreeSet::new());
    for round in 1..=3 {
        let mut victim = Command::new(std::env::current_exe().expect("this test is a file"))
            .args(["the_process_that_is_killed", "--exact", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(victim.stdout.take().expect("it is piped"));
        let mut lines = output.lines();
        // The process runs ahead of this reader, so the kill hits it in the middle of its work.
        for line in lines.by_ref().take(round * 40) {
            remember(&line.expect("the output is UTF-8"), &mut stored, &mut completed);
        }
        victim.kill().expect("it is killed");
        for line in lines {
            remember(&line.expect("the output is UTF-8"), &mut stored, &mut completed);
        }
        victim.wait().expect("it ended");

        let store = open(path);
        let states = states(&store).await;
        assert!(stored.len() > round * 100 && !completed.is_empty(), "the process did too little");
        for id in &stored {
            assert!(states.iter().any(|(of, _)| of == id), "{id} was acknowledged and is missing");
        }
        for id in &completed {
            assert!(states.contains(&(*id, State::Completed)), "{id} was settled and is not completed");
        }
        let counted: u64 = store.counts().await.expect("counts answers").iter().map(|count| count.tasks).sum();
        let live = states.iter().filter(|(_, state)| !state.is_final()).count();
        assert_eq!(counted, live as u64, "the counts do not fit the tasks");
        Store::close(&store).await.expect("the store closes");
    }
}

/// Collects the ids of a line such as `stored task_…` or `completed task_…`. The test runner also
/// prints lines.
fn remember(line: &str, stored: &mut BTreeSet<TaskId>, completed: &mut BTreeSet<TaskId>) {
    for (word, ids) in [("stored ", stored), ("completed ", completed)] {
        if let Some((_, list)) = line.split_once(word) {
            ids.extend(list.split(' ').filter_map(|id| id.parse::<TaskId>().ok()));
        }
    }
}

async fn states(store: &SqliteStore) -> BTreeSet<(TaskId, State)> {
    let filter = Filter { tenant: TENANT.into(), ..Filter::default() };
    let (mut states, mut after) = (BTreeSet::new(), None);
    loop {
        let page = store.list(filter.clone(), after, 1_000).await.expect("list answers");
        states.extend(page.tasks.iter().map(|task| (task.id, task.state())));
        match page.next {
            Some(next) => after = Some(next),
            None => return states,
        }
    }
}

/// Not a test by itself: it does nothing unless the test above starts it.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let store = open(&directory);
    let by = By { now: START, node: NodeId::new(1), actor: Actor::Worker("w".into()) };
    for _ in 0..1_000_000 {
        let batch = task().times(10);
        let ids: Vec<String> = batch.iter().map(|task| task.id.to_string()).collect();
        let lane = match store.insert(batch).await.expect("insert answers").first() {
            Some(punctual_core::store::Inserted::Created(task)) => task.lane.id,
            other => panic!("not created: {other:?}"),
        };
        println!("stored {}", ids.join(" "));
        let claimant = Claimant::Worker { name: "w".into(), lease_millis: 1_000, due_by: None };
        let claim = Claim { lanes: vec![(lane, 5)], limit: 5, claimant };
        let claimed = store.claim(vec![claim]).await.expect("claim answers").remove(0).tasks;
        let complete = |task: &punctual_core::task::Task| {
            let event = Event::Complete { result: None, http_status: None, dropped: None };
            (task.id, transition(&task.position, event, &by).expect("it runs"))
        };
        store.apply(claimed.iter().map(complete).collect()).await.expect("apply answers");
        let ids: Vec<String> = claimed.iter().map(|task| task.id.to_string()).collect();
        println!("completed {}", ids.join(" "));
    }
}
