//! Tests of the trail: steps are read back, and runs and errors are read from them.

use super::*;

fn entry(version: u64, to: State, step: Step<'static>) -> Entry<'static> {
    let actor = Actor::Worker("w1".into());
    Entry {
        at: Timestamp::from_millis(1_000 + i64::try_from(version).unwrap()),
        version,
        to,
        node: NodeId::new(7),
        actor,
        step,
    }
}

fn failed() -> Step<'static> {
    let error = RunError { code: "boom".into(), message: "it broke".into(), details: Some("{}".into()) };
    Step::Failed { outcome: FailedHow::Failed, error, http_status: Some(500) }
}

#[test]
fn pushed_entries_are_read_back_in_order() {
    let mut trail = Trail::default();
    let entries = [
        entry(1, State::Pending, Step::Submitted),
        entry(2, State::Queued, Step::Claimed),
        entry(4, State::Pending, failed()),
    ];
    for entry in &entries {
        trail.push(entry);
    }
    assert!(trail.entries().eq(entries.iter().cloned()));
    assert_eq!(trail.last_error().unwrap().1.code, "boom");
    assert_eq!(trail.at_version(2).unwrap().step, Step::Claimed);
}

/// Stored trails are read by these numbers.
#[test]
fn steps_keep_their_numbers() {
    let Step::Failed { outcome, error, http_status } = failed() else { unreachable!("it is one") };
    let instant = Timestamp::from_millis(77);
    let steps = [
        Step::Submitted,
        Step::Unblocked,
        Step::Claimed,
        Step::Started { attempt: 1 },
        Step::Completed { http_status: None },
        failed(),
        Step::GivenBack,
        Step::CancelRequested,
        Step::Cancelled,
        Step::Expired,
        Step::DependencyFailed,
        Step::Edited,
        Step::RunNow,
        Step::Redriven,
        Step::Scheduled { instant },
        Step::FailedUncounted { outcome, error, http_status },
        Step::ParentFailed { parent: TaskId::new(), ended: State::Cancelled },
        Step::Purged,
        Step::Omitted { steps: 1 },
        Step::Revived,
        Step::CompletedWithoutResult { http_status: None, dropped: ResultDropped::TooLarge },
    ];
    for (number, step) in (0_u8..).zip(steps) {
        assert_eq!(postcard::to_stdvec(&step).unwrap()[0], number, "{step:?}");
    }
}

/// Stored trails are read by these numbers.
#[test]
fn reasons_for_dropping_a_result_keep_their_numbers() {
    let reasons = [ResultDropped::TooLarge, ResultDropped::NotUtf8, ResultDropped::NotJson, ResultDropped::TooDeep];
    let words = ["too_large", "not_utf8", "not_json", "too_deep"];
    for (number, (dropped, word)) in (0_u8..).zip(reasons.into_iter().zip(words)) {
        assert_eq!((postcard::to_stdvec(&dropped).unwrap(), dropped.as_str()), (vec![number], word));
    }
}

#[test]
fn a_run_records_why_its_result_was_dropped() {
    let dropped = ResultDropped::NotJson;
    let mut trail = Trail::default();
    trail.push(&entry(3, State::Running, Step::Started { attempt: 1 }));
    trail.push(&entry(4, State::Completed, Step::CompletedWithoutResult { http_status: Some(200), dropped }));
    assert_eq!(trail.last().unwrap().reason(), "completed");
    let runs = trail.runs(TaskId::new());
    let end = runs[0].end.as_ref().unwrap();
    assert_eq!((end.outcome, end.http_status, end.result_dropped), (RunEnded::Completed, Some(200), Some(dropped)));
}

#[test]
fn an_uncounted_failure_is_shown_as_one() {
    let Step::Failed { outcome, error, http_status } = failed() else { unreachable!("it is one") };
    let mut trail = Trail::default();
    trail.push(&entry(3, State::Running, Step::Started { attempt: 1 }));
    trail.push(&entry(4, State::Pending, Step::FailedUncounted { outcome, error, http_status }));
    trail.push(&entry(6, State::Running, Step::Started { attempt: 1 }));
    trail.push(&entry(7, State::Pending, failed()));
    assert_eq!(trail.entries().nth(1).unwrap().reason(), "boom");
    assert_eq!(trail.last_error().unwrap().1.message, "it broke");
    let runs = trail.runs(TaskId::new());
    let ends: Vec<_> = runs.iter().map(|run| run.end.as_ref().unwrap()).collect();
    assert_eq!((runs[0].attempt, ends[0].outcome, ends[0].http_status), (1, RunEnded::Failed, Some(500)));
    assert_eq!((ends[0].uncounted, ends[1].uncounted), (Some("breaker_open"), None));
}

#[test]
fn an_expired_task_names_the_error_of_its_last_run() {
    let expired = |steps: Vec<Step<'static>>| {
        let mut trail = Trail::default();
        for (version, step) in (1..).zip(steps.into_iter().chain([Step::Expired])) {
            trail.push(&entry(version, State::Failed, step));
        }
        let (at, error) = trail.last_error().expect("it expired");
        assert_eq!((at, error.code.as_ref()), (trail.last().unwrap().at, "expired"));
        error.message.into_owned()
    };
    let started = || Step::Started { attempt: 1 };
    let never = "the task was not started by its expires_at";
    assert_eq!(expired(vec![Step::Submitted]), never);
    assert_eq!(expired(vec![Step::Submitted, Step::Claimed, Step::GivenBack]), never, "no run began");
    assert_eq!(
        expired(vec![Step::Submitted, started(), failed()]),
        "the task ran, but did not succeed by its expires_at; its last error was boom: it broke"
    );
    let Step::Failed { outcome, http_status, .. } = failed() else { unreachable!("it is one") };
    let error = RunError { code: "bad".into(), message: "".into(), details: None };
    let uncounted = Step::FailedUncounted { outcome, error, http_status };
    assert_eq!(
        expired(vec![started(), failed(), started(), uncounted, started(), Step::GivenBack]),
        "the task ran, but did not succeed by its expires_at; its last error was bad"
    );
    assert_eq!(
        expired(vec![started(), Step::GivenBack]),
        "the task was begun and given back, and was not started again by its expires_at"
    );
}

#[test]
fn a_dependency_that_failed_is_named() {
    let parent = TaskId::new();
    let message = |step: Step<'static>| {
        let mut trail = Trail::default();
        trail.push(&entry(2, State::Cancelled, step));
        assert_eq!(trail.last().unwrap().reason(), "dependency_failed");
        let (_, error) = trail.last_error().expect("it says why");
        assert_eq!(error.code, "dependency_failed");
        error.message.into_owned()
    };
    assert_eq!(
        message(Step::ParentFailed { parent, ended: State::DeadLettered }),
        format!("{parent}, which this task depends on, did not complete: it finished as DEAD_LETTERED")
    );
    assert_eq!(message(Step::DependencyFailed), "a task that this one depends on did not complete");
}

#[test]
fn the_first_state_can_be_another() {
    let mut trail = Trail::default();
    trail.push(&entry(1, State::Pending, Step::Submitted));
    trail.push(&entry(2, State::Cancelled, Step::Cancelled));
    let blocked = trail.beginning_in(State::Blocked);
    assert_eq!(blocked.entries().map(|entry| entry.to).collect::<Vec<_>>(), [State::Blocked, State::Cancelled]);
    assert_eq!(blocked.beginning_in(State::Pending), trail);
}

#[test]
fn the_first_step_has_the_instant_of_the_schedule() {
    let instant = Timestamp::from_millis(77);
    let mut trail = Trail::default();
    assert_eq!(trail.scheduled_for(), None);
    trail.push(&entry(1, State::Pending, Step::Scheduled { instant }));
    trail.push(&entry(2, State::Queued, Step::Claimed));
    assert_eq!(trail.scheduled_for(), Some(instant));
    assert_eq!(trail.beginning_in(State::Blocked).scheduled_for(), Some(instant));
    assert_eq!(trail.entries().next().unwrap().reason(), "submitted");
    let mut other = Trail::default();
    other.push(&entry(1, State::Pending, Step::Submitted));
    assert_eq!(other.scheduled_for(), None);
}

#[test]
fn a_torn_trail_keeps_its_readable_steps() {
    let mut trail = Trail::default();
    trail.push(&entry(1, State::Pending, Step::Submitted));
    trail.push(&entry(2, State::Pending, failed()));
    let mut bytes = trail.as_bytes().to_vec();
    bytes.truncate(bytes.len() - 3);
    let torn = Trail::from_bytes(bytes);
    assert_eq!(torn.entries().count(), 1);
    assert!(trail.is_whole() && !torn.is_whole());
    let mut later = torn.clone();
    later.push(&entry(3, State::Queued, Step::Claimed));
    assert!(!later.is_whole(), "entries behind the tear do not repair it");
    assert!(!Trail::default().is_whole(), "every task has a first step");
}

#[test]
fn a_run_is_its_start_and_its_end() {
    let mut trail = Trail::default();
    trail.push(&entry(3, State::Running, Step::Started { attempt: 1 }));
    trail.push(&entry(4, State::Pending, failed()));
    trail.push(&entry(6, State::Running, Step::Started { attempt: 2 }));
    let runs = trail.runs(TaskId::new());
    assert_eq!(runs.iter().map(|run| (run.attempt, run.token)).collect::<Vec<_>>(), [(1, 3), (2, 6)]);
    assert_eq!(runs[0].end.as_ref().unwrap().outcome, RunEnded::Failed);
    assert_eq!(runs[1].end, None);
}

#[test]
fn releases_are_counted_until_something_else_happens() {
    let mut trail = Trail::default();
    let mut counts = Vec::new();
    let run = |end| [Step::Claimed, Step::Started { attempt: 1 }, end];
    let node = Entry { actor: Actor::Node, ..entry(1, State::Pending, Step::GivenBack) };
    let steps = [Step::Submitted].into_iter().chain([(); 2].into_iter().flat_map(|()| run(Step::GivenBack)));
    for step in steps.chain([Step::Edited, Step::Claimed]) {
        trail.push(&entry(1, State::Pending, step));
        counts.push(trail.releases_in_a_row());
    }
    assert_eq!(counts, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    trail.push(&node);
    assert_eq!(trail.releases_in_a_row(), 2, "a node gave it back, not a worker");
    for end in [failed(), Step::RunNow, Step::Redriven] {
        let mut ended = trail.clone();
        ended.push(&entry(1, State::Pending, end));
        assert_eq!(ended.releases_in_a_row(), 0);
    }
}
