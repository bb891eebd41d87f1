//! `submit`: acknowledged submissions a second, and the preload of the other scenarios.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::NewTask;
use punctual_core::time::Timestamp;
use tokio::task::JoinSet;

use crate::BenchOptions;
use crate::client::{BenchClient, now, task};
use crate::report::BenchReport;

/// The tasks are due in an hour, so that only their submission is measured.
const AN_HOUR_MILLIS: i64 = 3_600_000;

/// Submits `tasks` tasks that are due much later.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    tasks: usize,
    single: bool,
) -> anyhow::Result<BenchReport> {
    let due = now().plus_millis(AN_HOUR_MILLIS);
    let batch = if single { 1 } else { options.batch };
    let connections = options.many_connections();
    let began = Instant::now();
    let make = move |number| task(number, "bench", Some(due), None);
    submit_all(client, connections, batch, tasks, "submitting", make).await?;
    let seconds = began.elapsed().as_secs_f64();
    let mut report = BenchReport::new("submit");
    report.count("tasks", tasks);
    report.count("batch", batch);
    report.count("connections", connections);
    report.number("seconds", seconds);
    report.number("submit_per_s", tasks as f64 / seconds);
    Ok(report)
}

/// Submits tasks over many connections to all servers, a batch a call. A batch of one is submitted
/// as a single task.
pub async fn submit_all<F>(
    client: &BenchClient,
    connections: usize,
    batch: usize,
    tasks: usize,
    what: &'static str,
    make: F,
) -> anyhow::Result<()>
where
    F: Fn(usize) -> NewTask + Send + Sync + 'static,
{
    let (next, make, bar) = (Arc::new(AtomicUsize::new(0)), Arc::new(make), progress(tasks, what));
    let mut senders = JoinSet::new();
    let connections = connections.min(tasks.div_ceil(batch)).max(1);
    for number in 0..connections {
        let (client, next, make, bar) = (client.of_number(number), Arc::clone(&next), Arc::clone(&make), bar.clone());
        senders.spawn(async move {
            loop {
                let from = next.fetch_add(batch, Relaxed);
                if from >= tasks {
                    return anyhow::Ok(());
                }
                let to = (from + batch).min(tasks);
                if batch == 1 {
                    client.submit(&make(from)).await?;
                } else {
                    client.submit_batch((from..to).map(|number| make(number))).await?;
                }
                bar.inc((to - from) as u64);
            }
        });
    }
    while let Some(sender) = senders.join_next().await {
        sender??;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Submits tasks of one queue in batches, over few connections.
pub async fn preload(
    client: &BenchClient,
    options: &BenchOptions,
    tasks: usize,
    queue: &'static str,
    due: impl Fn(usize) -> Option<Timestamp> + Send + Sync + 'static,
    callback_url: Option<String>,
) -> anyhow::Result<()> {
    submit_all(client, options.few_connections(), options.batch.max(2), tasks, "preloading", move |number| {
        task(number, queue, due(number), callback_url.as_deref())
    })
    .await
}

/// A progress bar on stderr.
pub fn progress(length: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:>12} {wide_bar} {pos}/{len} {per_sec} {eta}")
        .expect("invariant: the template is well formed");
    ProgressBar::new(length as u64).with_style(style).with_message(what)
}
