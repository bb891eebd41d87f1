use punctual_testkit::fixtures::task;

use super::*;

fn depending(on: &[TaskId]) -> NewTask {
    task().depends_on(on).build()
}

/// A batch without members that were put off before.
fn batch<'a>(tasks: &'a [NewTask], statuses: &'a [MemberStatus]) -> DependencyBatch<'a> {
    static NONE: std::sync::LazyLock<HashSet<TaskId>> = std::sync::LazyLock::new(HashSet::new);
    DependencyBatch::new(tasks, statuses, &NONE)
}

fn live(id: TaskId) -> (TaskId, KnownParent) {
    known(id, State::Running)
}

fn known(id: TaskId, state: State) -> (TaskId, KnownParent) {
    (id, KnownParent { tenant: punctual_testkit::fixtures::TENANT.to_owned(), state })
}

fn waits(plan: &MemberPlan) -> &Prerequisites {
    match plan {
        MemberPlan::Create(waits) => waits,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_task_waits_for_parents_inside_and_outside_its_batch() {
    let outside = TaskId::new();
    let first = depending(&[]);
    let second = depending(&[first.id, outside]);
    let (tasks, statuses) = ([second, first], [MemberStatus::New; 2]);
    let batch = batch(&tasks, &statuses);
    assert_eq!(batch.outside(), [outside]);
    let plans = batch.plan(&HashMap::from([live(outside)]));
    assert_eq!(waits(&plans[0]).edges, [tasks[1].id, outside]);
    assert!(waits(&plans[1]).awaited && !waits(&plans[0]).awaited);
}

#[test]
fn completed_parents_are_not_waited_for() {
    let ended = [State::Completed, State::Cancelled, State::Failed, State::DeadLettered];
    let ids = [TaskId::new(), TaskId::new(), TaskId::new(), TaskId::new()];
    let parents: HashMap<_, _> = ids.into_iter().zip(ended).map(|(id, state)| known(id, state)).collect();
    for (policy, waited) in [(OnDependencyFailure::Cancel, &ids[1..]), (OnDependencyFailure::Run, &ids[3..])] {
        let tasks = [task().depends_on(&ids).on_dependency_failure(policy).build()];
        let plans = batch(&tasks, &[MemberStatus::New]).plan(&parents);
        let waits = waits(&plans[0]);
        assert_eq!((waits.edges.as_slice(), waits.ended.len()), (waited, waited.len()), "{policy:?}");
        assert_eq!(waits.depends_on, ids);
    }
}

#[test]
fn a_replay_stands_for_its_first_task() {
    let first = TaskId::new();
    let replay = depending(&[]);
    let child = depending(&[replay.id, first]);
    let (tasks, statuses) = ([replay, child], [MemberStatus::As(first), MemberStatus::New]);
    let batch = batch(&tasks, &statuses);
    assert_eq!(batch.outside(), [first]);
    let plans = batch.plan(&HashMap::from([live(first)]));
    assert_eq!((&plans[0], waits(&plans[1]).edges.as_slice()), (&MemberPlan::Stays, [first].as_slice()), "once");
}

#[test]
fn a_refused_member_takes_its_descendants_along() {
    let refused = depending(&[]);
    let child = depending(&[refused.id]);
    let grandchild = depending(&[child.id]);
    let stranger = depending(&[]);
    let ids = [refused.id, child.id];
    let (tasks, statuses) = (
        [grandchild, child, refused, stranger],
        [MemberStatus::New, MemberStatus::New, MemberStatus::Refused, MemberStatus::New],
    );
    let plans = batch(&tasks, &statuses).plan(&HashMap::new());
    assert_eq!(plans[..3], [MemberPlan::Unknown(ids[1]), MemberPlan::Unknown(ids[0]), MemberPlan::Stays]);
    assert_eq!(waits(&plans[3]), &Prerequisites::default());
}

/// First the parent in the full queue is one of the tasks, then one that was put off before.
#[test]
fn a_missing_parent_is_reported_before_a_put_off_one() {
    let (full, unknown) = (depending(&[]), TaskId::new());
    let of_both = depending(&[full.id, unknown]);
    let behind = depending(&[full.id, of_both.id]);
    let put_off = depending(&[full.id]);
    let reused = depending(&[]);
    let of_reused = depending(&[full.id, reused.id]);
    let expected = [
        MemberPlan::Unknown(unknown),
        MemberPlan::Unknown(of_both.id),
        MemberPlan::Unknown(full.id),
        MemberPlan::Unknown(reused.id),
        MemberPlan::Stays,
        MemberPlan::Stays,
    ];
    let out = HashSet::from([full.id]);
    let mut tasks = vec![of_both, behind, put_off, of_reused, reused, full];
    let mut statuses = vec![
        MemberStatus::New,
        MemberStatus::New,
        MemberStatus::New,
        MemberStatus::New,
        MemberStatus::Refused,
        MemberStatus::PutOff,
    ];
    assert_eq!(batch(&tasks, &statuses).plan(&HashMap::new()), expected);
    tasks.pop();
    statuses.pop();
    let batch = DependencyBatch::new(&tasks, &statuses, &out);
    assert_eq!(batch.outside(), [unknown], "a parent that was put off is not looked up");
    assert_eq!(batch.plan(&HashMap::new()), expected[..5]);
}

#[test]
fn a_put_off_task_is_refused_only_for_a_missing_parent() {
    let (unknown, there) = (TaskId::new(), TaskId::new());
    let full = depending(&[there]);
    let hopeless = depending(&[unknown, there]);
    let behind = depending(&[full.id, hopeless.id]);
    let of_full = depending(&[full.id]);
    let new_behind = depending(&[behind.id]);
    let expected = [
        MemberPlan::Stays,
        MemberPlan::Unknown(unknown),
        MemberPlan::Unknown(hopeless.id),
        MemberPlan::Stays,
        MemberPlan::Unknown(behind.id),
    ];
    let tasks = [full, hopeless, behind, of_full, new_behind];
    let statuses =
        [MemberStatus::PutOff, MemberStatus::PutOff, MemberStatus::PutOff, MemberStatus::PutOff, MemberStatus::New];
    let batch = batch(&tasks, &statuses);
    assert_eq!(batch.outside().len(), 2);
    assert_eq!(batch.plan(&HashMap::from([live(there)])), expected);
}

#[test]
fn another_tenants_task_is_unknown() {
    let theirs = TaskId::new();
    let (tasks, statuses) = ([depending(&[theirs])], [MemberStatus::New]);
    let of_others = KnownParent { tenant: "other".to_owned(), state: State::Running };
    let plans = batch(&tasks, &statuses).plan(&HashMap::from([(theirs, of_others)]));
    assert_eq!(plans, [MemberPlan::Unknown(theirs)]);
}

#[test]
fn a_long_chain_is_refused_without_recursion() {
    let mut tasks = vec![depending(&[TaskId::new()])];
    for place in 0..50_000 {
        tasks.push(depending(&[tasks[place].id]));
    }
    let statuses = vec![MemberStatus::New; tasks.len()];
    let plans = batch(&tasks, &statuses).plan(&HashMap::new());
    assert!(plans.iter().all(|plan| matches!(plan, MemberPlan::Unknown(_))));
}

#[test]
fn ids_are_read_as_they_were_written() {
    let some = [TaskId::new(), TaskId::new()];
    assert_eq!(ids(ids_column(&some).as_deref()), Some(some.to_vec()));
    assert_eq!((ids_column(&[]), ids(None)), (None, Some(Vec::new())));
    assert_eq!(ids(Some(&[1, 2, 3])), None);
}
