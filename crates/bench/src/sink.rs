//! A webhook target in this process that completes everything and notes when it came.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use hdrhistogram::Histogram;
use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use tokio::sync::mpsc;

use crate::moment::Moment;
use crate::report::lateness_histogram;
use crate::submit::progress;

/// All webhooks of a scenario come within this.
const PATIENCE: Duration = Duration::from_mins(10);

/// See the module.
pub struct Sink {
    address: std::net::SocketAddr,
    hits: mpsc::UnboundedReceiver<(TaskId, Arrival)>,
}

/// A webhook that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its task was wanted.
    pub due: Timestamp,
    /// When it came.
    pub at: Moment,
}

/// Every webhook that came.
pub struct Arrivals {
    /// The first of each task.
    pub first: Vec<Arrival>,
    /// How many came again: a run was lost and repeated.
    pub repeated: usize,
}

impl Sink {
    /// Listens.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (told, hits) = mpsc::unbounded_channel();
        let app = axum::Router::new().route("/hook", axum::routing::post(hit)).with_state(told);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, hits })
    }

    /// Where to push to.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits until so many tasks have come, each at least once.
    pub async fn wait(&mut self, tasks: usize) -> anyhow::Result<Arrivals> {
        let bar = progress(tasks, "receiving");
        let (mut known, mut arrivals) = (HashSet::new(), Arrivals { first: Vec::new(), repeated: 0 });
        let all = async {
            while arrivals.first.len() < tasks {
                let (task, arrival) = self.hits.recv().await.context("the sink has ended")?;
                if known.insert(task) {
                    arrivals.first.push(arrival);
                    bar.inc(1);
                } else {
                    arrivals.repeated += 1;
                }
            }
            anyhow::Ok(())
        };
        let late = || format!("not all webhooks came within {} minutes", PATIENCE.as_secs() / 60);
        tokio::time::timeout(PATIENCE, all).await.with_context(late)??;
        bar.finish_and_clear();
        Ok(arrivals)
    }
}

impl Arrival {
    /// How many microseconds it came after it was wanted; negative: before.
    pub fn late_micros(self) -> i64 {
        self.at.micros_after(self.due)
    }
}

/// How late they came, in microseconds, and how many came early.
pub fn lateness<'a>(arrivals: impl IntoIterator<Item = &'a Arrival>) -> (Histogram<u64>, usize) {
    let (mut lateness, mut early) = (lateness_histogram(), 0);
    for late in arrivals.into_iter().map(|arrival| arrival.late_micros()) {
        early += usize::from(late < 0);
        lateness.saturating_record(u64::try_from(late).unwrap_or(0));
    }
    (lateness, early)
}

async fn hit(State(told): State<mpsc::UnboundedSender<(TaskId, Arrival)>>, headers: HeaderMap) -> StatusCode {
    let at = Moment::now();
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let task = text("punctual-task-id").and_then(|id| id.parse().ok());
    let due = text("punctual-execute-at").and_then(|due| Timestamp::parse(due).ok());
    let (Some(task), Some(due)) = (task, due) else { return StatusCode::BAD_REQUEST };
    // What comes when nobody counts any more is completed all the same.
    told.send((task, Arrival { due, at })).ok();
    StatusCode::NO_CONTENT
}
