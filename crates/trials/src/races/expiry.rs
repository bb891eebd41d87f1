//! Races around the end of a lease: zombies, and workers that are almost late.

use std::time::Duration;

use punctual_core::time::Timestamp;
use rand::RngExt;

use super::legal::{Legal, Outcome, told};
use super::round::Round;
use crate::caller::Held;
use crate::history::Said;

/// What a worker waits for a task that is taken back, from before the end of a lease: that, the reaper, the delay
/// before the retry, and a busy machine.
const TAKEN_OVER: Duration = Duration::from_secs(4);

/// A worker comes back when another one has its task; both speak at once.
pub const LATE_COMPLETION: &[Legal] = &[
    Legal::new("refused, answered before the holder", &["409 stale_token", "200"], "COMPLETED by B").first(0),
    Legal::new("refused, answered after the holder", &["409 stale_token", "200"], "COMPLETED by B").first(1),
];

/// See [`LATE_COMPLETION`].
pub async fn late_completion(round: &mut Round) -> Outcome {
    let Some(zombie) = round.running(1).await else { return round.never_began() };
    let Some(holder) = round.take_surely(1, "B").await else { return round.never_began() };
    let task = zombie.task;
    let words = [Said::Completed, Said::Completed, Said::Failed, Said::FailedForGood, Said::Released, Said::Heartbeat];
    let word = words[round.dice.random_range(0..words.len())];
    let (late, rightful) = (settling(round, 0, &zombie, word), settling(round, 1, &holder, Said::Completed));
    let (late, rightful) = round.pair(late, rightful).await;
    round.outcome(task, [told(&late), told(&rightful)], round.state(task).await)
}

/// A worker shows a sign of life about when its lease ends.
pub const LATE_HEARTBEAT: &[Legal] = &[
    Legal::new("in time: it goes on, and completes", &["200", "200", "nothing"], "COMPLETED by A"),
    Legal::new("too late: another one goes on", &["409 stale_token", "409 stale_token", "lease"], "COMPLETED by B"),
];

/// See [`LATE_HEARTBEAT`].
pub async fn late_heartbeat(round: &mut Round) -> Outcome {
    let Some(late) = round.running(1).await else { return round.never_began() };
    let task = late.task;
    let moment = moment(round, late.expires_at);
    let (beat, then) = (settling(round, 0, &late, Said::Heartbeat), settling(round, 0, &late, Said::Completed));
    let waiting = round.poll(1, "B", TAKEN_OVER, 60);
    let clock = round.seat(0);
    let beating = async move {
        until(&clock, moment).await;
        let beat = beat.await;
        // In time, it has the task for another second: now is as good as any moment of it.
        let then = if beat.shown().is_some() { Some(then.await) } else { None };
        (beat, then)
    };
    let ((beat, then), next) = round.pair(beating, waiting).await;
    let then = match then {
        Some(then) => then,
        None => round.seat(0).settle(&late, Said::Completed).await,
    };
    let got = taken_over(round, next.as_ref()).await;
    round.outcome(task, [told(&beat), told(&then), got], round.state(task).await)
}

/// A worker completes about when its lease ends, and another one waits for the task.
pub const COMPLETION_AT_EXPIRY: &[Legal] = &[
    Legal::new("accepted, and not given out again", &["200", "nothing"], "COMPLETED by A"),
    Legal::new("refused, and given out again", &["409 stale_token", "lease"], "COMPLETED by B"),
];

/// See [`COMPLETION_AT_EXPIRY`].
pub async fn completion_at_expiry(round: &mut Round) -> Outcome {
    let Some(late) = round.running(1).await else { return round.never_began() };
    let task = late.task;
    let moment = moment(round, late.expires_at);
    let completing = settling(round, 0, &late, Said::Completed);
    let waiting = round.poll(1, "B", TAKEN_OVER, 60);
    let clock = round.seat(0);
    let completing = async move {
        until(&clock, moment).await;
        completing.await
    };
    let (completed, next) = round.pair(completing, waiting).await;
    let got = taken_over(round, next.as_ref()).await;
    round.outcome(task, [told(&completed), got], round.state(task).await)
}

/// What a worker says, in one way or the other.
fn settling(
    round: &mut Round,
    seat: usize,
    held: &Held,
    said: Said,
) -> impl Future<Output = crate::history::Answer> + Send + 'static {
    let (way, caller, held) = (round.way(), round.seat(seat), held.clone());
    async move { way.settle(&caller, &held, said).await }
}

/// A moment about the end of a lease, or about the reaper's next visit after it, or anywhere between.
fn moment(round: &mut Round, expires_at: Timestamp) -> Timestamp {
    let visit = round.pulse.next(expires_at);
    match (round.draw(0, 5), visit) {
        (0 | 1, _) => expires_at.plus_millis(round.draw(-8, 8)),
        (2 | 3, Some(visit)) => visit.plus_millis(round.draw(-12, 25)),
        _ => expires_at.plus_millis(round.draw(0, 700)),
    }
}

/// Waits for an instant, to within a millisecond.
async fn until(clock: &crate::caller::Caller, at: Timestamp) {
    tokio::time::sleep(at.duration_from(clock.recorder().now().wall())).await;
}

/// Whether the next worker got the task; if so, it completes it.
async fn taken_over(round: &Round, next: Option<&Held>) -> String {
    let Some(next) = next else { return "nothing".to_owned() };
    round.notice_reaper(next.task).await;
    round.seat(1).settle_surely(next, Said::Completed).await;
    "lease".to_owned()
}
