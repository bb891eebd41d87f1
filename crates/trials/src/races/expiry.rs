//! Races around the end of a lease: zombies, and workers that are almost late.

use std::time::Duration;

use punctual_core::time::Timestamp;
use rand::RngExt;

use super::legal::{Legal, RoundOutcome, shown};
use super::round::Round;
use crate::caller::HeldLease;
use crate::history::WorkerReport;

/// How long a worker waits, from before the end of a lease, for a task that is taken back: long
/// enough for the rest of the lease, the reaper, the delay before the retry, and a busy machine.
const TAKEN_OVER: Duration = Duration::from_secs(4);

/// How long a worker continues after a heartbeat: past the old end of its lease and the reaper's
/// next pass.
const GOES_ON: Duration = Duration::from_millis(700);

/// A worker comes back when another one has its task; both report at once.
pub const LATE_COMPLETION: &[Legal] = &[
    Legal::new("refused, answered before the holder", &["409 stale_token", "200"], "COMPLETED by B").first(0),
    Legal::new("refused, answered after the holder", &["409 stale_token", "200"], "COMPLETED by B").first(1),
];

/// See [`LATE_COMPLETION`].
pub async fn late_completion(round: &mut Round) -> RoundOutcome {
    let Some(zombie) = round.running_shortly(&round.wish()).await else { return RoundOutcome::never_began() };
    let words = [
        WorkerReport::Completed,
        WorkerReport::Completed,
        WorkerReport::Failed,
        WorkerReport::FailedForGood,
        WorkerReport::Released,
        WorkerReport::Heartbeat,
    ];
    let word = words[round.dice.random_range(0..words.len())];
    come_back(round, zombie, word).await
}

/// A worker sends many heartbeats until the deadline of its run, and one more when another worker
/// has its task.
pub const LATE_FLOOD: &[Legal] = &[
    Legal::new("refused, answered before the holder", &["409 timed_out", "200"], "COMPLETED by B").first(0),
    Legal::new("refused, answered after the holder", &["409 timed_out", "200"], "COMPLETED by B").first(1),
];

/// See [`LATE_FLOOD`].
pub async fn late_flood(round: &mut Round) -> RoundOutcome {
    // The next run must fit into the same timeout, on a busy machine too.
    let wish = round.wish().timeout_seconds(3);
    let Some(zombie) = round.running_for(&wish, 3).await else { return RoundOutcome::never_began() };
    let moment = zombie.expires_at.plus_millis(round.draw(-200, -50));
    round.at(0, Some(moment), |_| async {}).await;
    round.flood(&zombie).await;
    come_back(round, zombie, WorkerReport::Heartbeat).await
}

/// The next worker gets the task; it and the zombie report at once.
async fn come_back(round: &mut Round, zombie: HeldLease, word: WorkerReport) -> RoundOutcome {
    let Some(holder) = round.take_surely(1, "B").await else { return RoundOutcome::never_began() };
    let task = zombie.task;
    let (late, rightful) = (round.settling(0, &zombie, word), round.settling(1, &holder, WorkerReport::Completed));
    let (late, rightful) = round.pair(late, rightful).await;
    round.outcome(task, [shown(&late), shown(&rightful)], round.state(task).await)
}

/// A worker sends a heartbeat about when its lease ends.
pub const LATE_HEARTBEAT: &[Legal] = &[
    Legal::new("in time: the worker continues and completes", &["200", "in time", "200", "nothing"], "COMPLETED by A"),
    Legal::new(
        "about in time, and refused: another worker continues",
        &["409 stale_token", "in time", "409 stale_token", "lease"],
        "COMPLETED by B",
    )
    .rare(),
    Legal::new(
        "too late: another worker continues",
        &["409 stale_token", "too late", "409 stale_token", "lease"],
        "COMPLETED by B",
    ),
];

/// See [`LATE_HEARTBEAT`].
pub async fn late_heartbeat(round: &mut Round) -> RoundOutcome {
    let Some(late) = round.running_shortly(&round.wish()).await else { return RoundOutcome::never_began() };
    let task = late.task;
    let moment = moment(round, late.expires_at);
    let (beat, then) =
        (round.settling(0, &late, WorkerReport::Heartbeat), round.settling(0, &late, WorkerReport::Completed));
    let waiting = round.poll(1, "B", TAKEN_OVER, 60);
    let (end, works_for) = (late.expires_at, if round.dice.random() { GOES_ON } else { Duration::ZERO });
    let beating = round.at(0, Some(moment), move |caller| async move {
        let too_late = caller.recorder().now().surely_after(end, 0);
        let beat = beat.await;
        if beat.shown().is_none() {
            return (beat, too_late, None);
        }
        tokio::time::sleep(works_for).await;
        (beat, too_late, Some(then.await))
    });
    let ((beat, too_late, then), next) = round.pair(beating, waiting).await;
    let when = if too_late { "too late" } else { "in time" };
    let then = match then {
        Some(then) => then,
        None => round.seat(0).settle(&late, WorkerReport::Completed).await,
    };
    let got = taken_over(round, next.as_ref()).await;
    round.outcome(task, [shown(&beat), when.to_owned(), shown(&then), got], round.state(task).await)
}

/// A worker completes about when its lease ends, and another one waits for the task.
pub const COMPLETION_AT_EXPIRY: &[Legal] = &[
    Legal::new("accepted, and not delivered again", &["200", "nothing"], "COMPLETED by A"),
    Legal::new("refused, and delivered again", &["409 stale_token", "lease"], "COMPLETED by B"),
];

/// See [`COMPLETION_AT_EXPIRY`].
pub async fn completion_at_expiry(round: &mut Round) -> RoundOutcome {
    let Some(late) = round.running_shortly(&round.wish()).await else { return RoundOutcome::never_began() };
    let task = late.task;
    let moment = moment(round, late.expires_at);
    let completing = round.settling(0, &late, WorkerReport::Completed);
    let waiting = round.poll(1, "B", TAKEN_OVER, 60);
    let completing = round.at(0, Some(moment), move |_| completing);
    let (completed, next) = round.pair(completing, waiting).await;
    let got = taken_over(round, next.as_ref()).await;
    round.outcome(task, [shown(&completed), got], round.state(task).await)
}

/// A moment about the end of a lease, or about the reaper's next pass after it, or anywhere
/// between.
fn moment(round: &mut Round, expires_at: Timestamp) -> Timestamp {
    let visit = round.pulse.next(expires_at);
    match (round.draw(0, 5), visit) {
        // On a busy machine a call takes longer than a few milliseconds to arrive.
        (0 | 1, _) => expires_at.plus_millis(round.draw(-25, 8)),
        (2 | 3, Some(visit)) => visit.plus_millis(round.draw(-12, 25)),
        _ => expires_at.plus_millis(round.draw(0, 700)),
    }
}

/// Whether the next worker got the task; if so, it completes it.
async fn taken_over(round: &Round, next: Option<&HeldLease>) -> String {
    let Some(next) = next else { return "nothing".to_owned() };
    round.notice_reaper(next.task).await;
    round.seat(1).settle_surely(next, WorkerReport::Completed).await;
    "lease".to_owned()
}
