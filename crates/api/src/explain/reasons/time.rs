//! The instants of a task itself: when it is due, and when it expires.

use punctual_client::Reason;
use punctual_core::state::State;
use punctual_core::task::Task;
use punctual_core::trail::Step;

use super::{other_tasks, reason};
use crate::explain::facts::Facts;

/// The task or its retry is not due yet.
pub(super) fn due(facts: &Facts) -> Option<Reason> {
    let (task, due_at) = (&facts.task, facts.task.due_at);
    if due_at <= facts.now {
        return None;
    }
    let base = match failed_attempt(task) {
        Some(failed) => reason("waiting_for_retry", format!("{failed}; the next is due at {due_at}")),
        None => reason("not_due_yet", format!("it is due at {due_at}{}", spread(facts))),
    };
    Some(Reason { until: Some(due_at), ..base })
}

/// The failed attempt before its retry, for a sentence.
pub(super) fn failed_attempt(task: &Task) -> Option<String> {
    let attempts = task.position.attempts;
    let (_, error) = task.trail.last_error()?;
    if attempts > 0 {
        return Some(format!("attempt {attempts} failed ({})", error.code));
    }
    // A failure under an open breaker is not counted.
    let is_uncounted = task.trail.last().is_some_and(|entry| entry.uncounted().is_some());
    is_uncounted.then(|| format!("an attempt failed and was not counted ({})", error.code))
}

/// The jitter that moved its due instant from the requested one, for the end of a sentence.
fn spread(facts: &Facts) -> String {
    let (task, execute_at) = (&facts.task, facts.task.execute_at);
    let by_schedule = task
        .scheduled_for()
        .filter(|instant| *instant < execute_at)
        .map(|instant| format!("; its instant is {instant}, and its schedule spreads its tasks (jitter_seconds)"));
    // A task that was given back waits for another reason.
    let is_given_back = task.trail.last().is_some_and(|entry| matches!(entry.step, Step::GivenBack));
    let by_queue = (task.due_at > execute_at && !is_given_back).then(|| {
        let (queue, jitter) = (&facts.queue.name, facts.queue.settings.dispatch_jitter_millis);
        let most = if jitter > 0 { format!(" over {} s", seconds(jitter)) } else { String::new() };
        format!("; it was to run at {execute_at}, and queue {queue} spreads its tasks{most} (dispatch_jitter_seconds)")
    });
    let releases = if is_given_back { task.trail.releases_in_a_row() } else { 0 };
    let by_release = (releases > 1)
        .then(|| format!("; workers released it {releases} times in a row, so it waits longer each time"));
    by_schedule.into_iter().chain(by_queue).chain(by_release).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a jitter is at most an hour")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

/// The task expires before it can run, by the known ends of the other reasons and of the tasks in
/// its way.
pub(super) fn expiry(facts: &Facts, reasons: &[Reason]) -> Option<Reason> {
    let expires_at = facts.task.expires_at?;
    let failed = State::Failed.as_str();
    if expires_at <= facts.now {
        let message = format!("it expired at {expires_at}, and is about to be {failed} with the code expired");
        return Some(Reason { since: Some(expires_at), ..reason("expires_first", message) });
    }
    let own = reasons.iter().filter_map(|reason| reason.until).max().map(|until| (until, String::new()));
    let in_the_way = other_tasks::last(facts);
    let (earliest, since) = own.into_iter().chain(in_the_way).max().filter(|(until, _)| *until >= expires_at)?;
    let again = if facts.task.started_at.is_some() { " again" } else { "" };
    let message = format!(
        "it expires at {expires_at}, and as things stand it cannot run{again} before {earliest}{since}: it will be {failed} \
         with the code expired, unless its expires_at is changed"
    );
    Some(reason("expires_first", message))
}
