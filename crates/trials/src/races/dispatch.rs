//! Races between a submitter's change and the delivery of the task.
//!
//! In half of the rounds the task is due, and the worker polls when the change is made. In the
//! other half the worker waits already, and the change is made about when the task is due.

use std::time::Duration;

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use punctual_testkit::sink::SinkAnswer as Target;
use rand::RngExt;
use serde_json::{Value, json};

use super::legal::{Legal, RoundOutcome, shown, shown_with_state};
use super::round::Round;
use crate::caller::{Caller, HeldLease, Wish};
use crate::history::WorkerReport;

/// How long a worker waits for a task that may not come.
const IN_VAIN: Duration = Duration::from_millis(500);
/// How long a worker waits for a task that must come.
const SURELY: Duration = Duration::from_secs(10);

/// A waiting task is cancelled while a worker polls for it.
pub const CANCEL_AGAINST_LEASE: &[Legal] = &[
    Legal::new("cancelled, and not delivered", &["200 CANCELLED", "nothing", "-"], "CANCELLED"),
    Legal::new("got, and its worker asked to stop", &["202 RUNNING", "lease", "410 cancelled"], "CANCELLED"),
];

/// See [`CANCEL_AGAINST_LEASE`].
pub async fn cancel_against_lease(round: &mut Round) -> RoundOutcome {
    let Some((task, moment)) = due_soon(round, |wish| wish).await else { return RoundOutcome::never_began() };
    let poll = round.poll(1, "B", IN_VAIN, 60);
    let cancelling = round.at(0, moment, move |caller| async move { caller.cancel(task).await });
    let (cancelled, got) = round.pair(cancelling, poll).await;
    let (lease, next) = match &got {
        Some(held) => {
            let report = if round.dice.random() { WorkerReport::Heartbeat } else { WorkerReport::Completed };
            ("lease", shown(&round.settling(1, held, report).await))
        }
        None => ("nothing", "-".to_owned()),
    };
    round.outcome(task, [shown_with_state(&cancelled), lease.to_owned(), next], round.state(task).await)
}

/// A task that is about to be pushed is cancelled.
pub const CANCEL_AGAINST_WEBHOOK: &[Legal] = &[
    Legal::new("cancelled, and not pushed", &["200 CANCELLED", "0 arrivals"], "CANCELLED"),
    Legal::new("pushed, and its outcome discarded", &["202 RUNNING", "1 arrivals"], "CANCELLED"),
    Legal::new("pushed and done before", &["409 already_final", "1 arrivals"], "COMPLETED"),
    Legal::new("pushed, and stopped before the answer", &["202 CANCELLED", "1 arrivals"], "CANCELLED").rare(),
];

/// See [`CANCEL_AGAINST_WEBHOOK`].
pub async fn cancel_against_webhook(round: &mut Round) -> RoundOutcome {
    let path = format!("/{}", round.key);
    let takes = Duration::from_millis(round.dice.random_range(2..12));
    round.sink.answer(&path, Target::status(200).after(takes));
    let due_at = round.soon(30, 60);
    let wish = round.wish().due_at(due_at).pushed_to(&round.sink.url(&path));
    let Some(task) = round.submit(&wish).await else { return RoundOutcome::never_began() };
    let moment = Some(due_at.plus_millis(round.draw(-4, 22)));
    let cancelled = round.at(0, moment, move |caller| async move { caller.cancel(task).await }).await;
    let end = round.rest(task).await;
    let arrivals = round.sink.hits(&path).len();
    let outcome = round.outcome(task, [shown_with_state(&cancelled), format!("{arrivals} arrivals")], end);
    RoundOutcome { raced: true, ..outcome }
}

/// A task gets a later time while it is due.
pub const RESCHEDULE_AGAINST_CLAIM: &[Legal] = &[
    Legal::new("moved, and got at its new time", &["200", "lease after the edit"], "COMPLETED by B"),
    Legal::new("got, and not moved any more", &["409 not_editable", "lease before the edit"], "COMPLETED by B"),
];

/// See [`RESCHEDULE_AGAINST_CLAIM`].
pub async fn reschedule_against_claim(round: &mut Round) -> RoundOutcome {
    let Some((task, moment)) = due_soon(round, |wish| wish).await else { return RoundOutcome::never_began() };
    let later = round.soon(150, 300);
    let editing = round.at(0, moment, move |caller| async move { caller.edit(task, Some(later), None).await });
    let poll = round.poll(1, "B", SURELY, 60);
    let (edited, got) = round.pair(editing, poll).await;
    let lease = lease_relative_to_the_edit(round, got.as_ref()).await;
    round.outcome(task, [shown(&edited), lease], round.state(task).await)
}

/// A task gets another payload while it is claimed.
pub const EDIT_AGAINST_CLAIM: &[Legal] = &[
    Legal::new(
        "changed, and got with the new payload",
        &["200", "lease after the edit", "new", "new"],
        "COMPLETED by B",
    ),
    Legal::new(
        "got, and not changed any more",
        &["409 not_editable", "lease before the edit", "old", "old"],
        "COMPLETED by B",
    ),
];

/// See [`EDIT_AGAINST_CLAIM`].
pub async fn edit_against_claim(round: &mut Round) -> RoundOutcome {
    edit(round, None).await
}

/// A task gets another payload while it is claimed, but only at its first version.
pub const CONDITIONAL_EDIT_AGAINST_CLAIM: &[Legal] = &[
    Legal::new(
        "changed, and got with the new payload",
        &["200", "lease after the edit", "new", "new"],
        "COMPLETED by B",
    ),
    Legal::new(
        "got, and at another version",
        &["412 version_mismatch", "lease before the edit", "old", "old"],
        "COMPLETED by B",
    ),
];

/// See [`CONDITIONAL_EDIT_AGAINST_CLAIM`].
pub async fn conditional_edit_against_claim(round: &mut Round) -> RoundOutcome {
    edit(round, Some(1)).await
}

async fn edit(round: &mut Round, if_match: Option<u64>) -> RoundOutcome {
    // Longer than the old payload, so that a partial write would show.
    let (old, new) = (payload("old", 10), payload("new", 400));
    let Some((task, moment)) = due_soon(round, |wish| wish.payload(old.clone())).await else {
        return RoundOutcome::never_began();
    };
    let wanted = new.clone();
    let edit = move |caller: Caller| async move { caller.edit_at(task, None, Some(wanted), if_match).await };
    let editing = round.at(0, moment, edit);
    let poll = round.poll(1, "B", SURELY, 60);
    let (edited, got) = round.pair(editing, poll).await;
    let which = |payload: &Value| {
        if *payload == old {
            "old"
        } else if *payload == new {
            "new"
        } else {
            "a mixture"
        }
    };
    let given = got.as_ref().map_or("nothing", |held| which(&held.payload)).to_owned();
    let lease = lease_relative_to_the_edit(round, got.as_ref()).await;
    let kept = which(&round.read(task).await["payload"]).to_owned();
    round.outcome(task, [shown(&edited), lease, given, kept], round.state(task).await)
}

fn payload(which: &str, words: usize) -> Value {
    json!({"is": which, "words": vec![which; words], "still": which})
}

/// The token shows whether there was an edit: a task is submitted at version 1, and a lease adds
/// two.
async fn lease_relative_to_the_edit(round: &Round, got: Option<&HeldLease>) -> String {
    let Some(held) = got else { return "nothing".to_owned() };
    round.seat(1).settle_surely(held, WorkerReport::Completed).await;
    match held.token {
        3 => "lease before the edit".to_owned(),
        4 => "lease after the edit".to_owned(),
        token => format!("lease with token {token}"),
    }
}

/// A task that is due now; or one that is due soon, and the moment at which to change it.
pub async fn due_soon(round: &mut Round, wish: impl FnOnce(Wish) -> Wish) -> Option<(TaskId, Option<Timestamp>)> {
    let wish = wish(round.wish());
    if round.dice.random() {
        return round.submit(&wish).await.map(|task| (task, None));
    }
    let due_at = round.soon(30, 60);
    let task = round.submit(&wish.due_at(due_at)).await?;
    Some((task, Some(due_at.plus_millis(round.draw(-5, 5)))))
}
