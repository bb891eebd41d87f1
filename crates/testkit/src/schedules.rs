//! The conformance suite of [`punctual_core::schedules::Schedules`]: each sentence of its
//! contract is a function here of the same name.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::cron::{CronExpression, DayOverflow, Pattern};
use punctual_core::ids::{NodeId, ScheduleId};
use punctual_core::schedules::plan::{Covers, Origin, Overlap};
use punctual_core::schedules::{
    Advance, Advanced, CheckCursor, EVERY_PASS, Occurrence, OccurrenceOutcome, PauseSwitch, Progress, Record, Replaced,
    Schedule, ScheduleInserted, SchedulePause,
};
use punctual_core::state::State;
use punctual_core::task::NewTask;
use punctual_core::upkeep::Prunable;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixtures::{TENANT, at, json};
use crate::store::{StoreFactory, StoreFixture, all_of};

pub(crate) mod made;
mod records;
mod refused;
mod triggers;

pub(crate) use made::{advance, done, fired, of_schedule, record, schedule};
use made::{due, get, keys, lead, lost, occurrences, replace, snapshot, stored};
pub use records::*;
pub use refused::*;
pub use triggers::*;

/// A minute, in milliseconds.
const MINUTE: i64 = 60_000;

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! schedules_conformance {
    ($factory:expr) => {
        $crate::stamp! { schedules, $factory;
            a_name_is_given_once_in_a_tenant,
            replace_needs_the_revision,
            a_name_that_is_taken_is_not_given_by_a_replace,
            remove_needs_the_revision_and_frees_the_name,
            a_schedule_is_bound_to_its_tenant,
            list_pages_by_name,
            due_lists_the_schedules_to_check,
            an_advance_is_one_write,
            an_advance_whose_task_is_refused_leaves_nothing,
            an_advance_needs_the_revision,
            an_advance_is_fenced_by_the_term,
            an_instant_fires_once,
            a_waiting_occurrence_changes_its_record,
            a_backfill_fires_instants_that_did_not_run,
            a_cut_keeps_what_a_backfill_does_not_run,
            covering_lists_the_records_of_many_instants,
            only_written_records_are_counted,
            waiting_occurrences_are_listed_in_order,
            a_fired_task_is_watched_until_it_finishes,
            an_advance_of_a_removed_schedule_is_lost,
            a_backfill_does_not_count_as_a_run,
            a_key_triggers_one_run,
            a_waiting_occurrence_knows_the_task_of_its_key,
            an_advance_edits_in_the_same_write,
            occurrences_page_from_the_newest,
            old_occurrences_are_pruned,
            an_advance_switches_a_pause,
            schedules_outlive_the_process,
            many_advances_in_one_call_are_each_by_themselves,
        }
    };
}

/// The second schedule is refused, and its id stays unknown.
pub async fn a_name_is_given_once_in_a_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = stored(&fixture, "nightly").await;
    let second = schedule("nightly");
    assert_eq!(fixture.schedules.insert(second.clone()).await.unwrap(), ScheduleInserted::NameTaken);
    assert_eq!(get(&fixture, &first).await, Some(first.clone()));
    assert_eq!(fixture.schedules.get(TENANT, second.id).await.unwrap(), None);
    let other = Schedule { tenant: "other".into(), ..schedule("nightly") };
    assert_eq!(fixture.schedules.insert(other.clone()).await.unwrap(), ScheduleInserted::Created);
    assert_eq!(fixture.schedules.named("other", "nightly").await.unwrap(), Some(other));
    assert_eq!(fixture.schedules.named(TENANT, "nightly").await.unwrap(), Some(first));

    let barrier = Arc::new(Barrier::new(8));
    let mut tries = JoinSet::new();
    for _ in 0..8 {
        let (schedules, barrier) = (Arc::clone(&fixture.schedules), Arc::clone(&barrier));
        tries.spawn(async move {
            barrier.wait().await;
            schedules.insert(schedule("raced")).await.unwrap()
        });
    }
    let made = tries.join_all().await;
    assert_eq!(made.iter().filter(|inserted| **inserted == ScheduleInserted::Created).count(), 1);
}

/// Every field is read back as it was written; an older revision writes nothing.
pub async fn replace_needs_the_revision(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let mut edited = Schedule {
        name: "hourly".into(),
        version: 2,
        updated_at: at(5),
        progress: Progress {
            next_run_at: Some(at(MINUTE)),
            next_check_at: None,
            last_run_at: Some(at(1)),
            run_count: 7,
            missed_count: 8,
            skipped_count: 9,
        },
        ..was.clone()
    };
    edited.definition.spec.overlap = Overlap::BufferAll;
    edited.definition.spec.max_runs = Some(3);
    // It matches by this rule alone.
    let cron = CronExpression::parse_with("0 9 31 2 *", DayOverflow::Last).expect("an expression");
    edited.definition.spec.timing.pattern = Pattern::Cron(cron);
    edited.definition.spec.timing.rules.day_overflow = DayOverflow::Last;
    edited.definition.pause_on_failure = true;
    edited.definition.task = json(r#"{"type":"other","payload":{"a":[1.50,null]}}"#);
    edited.set_pause(Some(SchedulePause { at: at(4), reason: Some("as \"you\" wish".into()) }));
    assert_eq!(replace(&fixture, &edited).await, Replaced::Done);
    let read = get(&fixture, &was).await.unwrap();
    assert_eq!(read, Schedule { revision: 2, ..edited.clone() });
    assert_eq!(replace(&fixture, &Schedule { name: "late".into(), ..edited }).await, Replaced::Lost);
    assert_eq!(get(&fixture, &was).await, Some(read.clone()));
    assert_eq!(replace(&fixture, &Schedule { revision: 3, ..read.clone() }).await, Replaced::Lost, "a later revision");
    assert_eq!(replace(&fixture, &schedule("nobody")).await, Replaced::Lost);
    let mut goes_on = read;
    goes_on.set_pause(None);
    assert_eq!(replace(&fixture, &goes_on).await, Replaced::Done);
    assert_eq!(get(&fixture, &was).await.unwrap().pause, None);
}

/// The other one keeps it, and the revision does not move.
pub async fn a_name_that_is_taken_is_not_given_by_a_replace(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (one, two) = (stored(&fixture, "one").await, stored(&fixture, "two").await);
    let renamed = Schedule { name: "two".into(), version: 2, ..one.clone() };
    assert_eq!(replace(&fixture, &renamed).await, Replaced::NameTaken);
    assert_eq!((get(&fixture, &one).await, get(&fixture, &two).await), (Some(one.clone()), Some(two)));
    assert_eq!(replace(&fixture, &Schedule { name: "three".into(), ..one }).await, Replaced::Done);
}

/// Nothing of it is found any more, and its tasks are unchanged.
pub async fn remove_needs_the_revision_and_frees_the_name(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let made = of_schedule(&was, at(0));
    let records = vec![fired(at(0), &made), record(at(1), OccurrenceOutcome::Buffered)];
    assert_eq!(done(&fixture, advance(&was, records)).await, [at(0), at(1)]);
    assert!(!fixture.schedules.remove(was.id, 1).await.unwrap(), "an advance has moved the revision");
    assert!(fixture.schedules.remove(was.id, 2).await.unwrap());
    assert_eq!(occurrences(&fixture, &was).await.len(), 1, "waiting occurrences are removed with it");
    assert_eq!(
        fixture.database.prune(Prunable::Occurrences, at(MINUTE), 10).await.unwrap().removed,
        1,
        "the other records are pruned at their time"
    );
    assert!(!fixture.schedules.remove(was.id, 2).await.unwrap());
    assert_eq!(get(&fixture, &was).await, None);
    assert_eq!(fixture.schedules.named(TENANT, "nightly").await.unwrap(), None);
    assert_eq!(fixture.schedules.list(TENANT, None, 10).await.unwrap(), []);
    assert_eq!(due(&fixture, at(MINUTE)).await, []);
    assert!(fixture.find(TENANT, made.id).await.is_some());
    stored(&fixture, "nightly").await;
}

/// Neither by its id, its name, nor in a list.
pub async fn a_schedule_is_bound_to_its_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let own = stored(&fixture, "nightly").await;
    assert_eq!(fixture.schedules.get("other", own.id).await.unwrap(), None);
    assert_eq!(fixture.schedules.snapshot("other", own.id).await.unwrap(), None);
    assert_eq!(fixture.schedules.named("other", "nightly").await.unwrap(), None);
    assert_eq!(fixture.schedules.list("other", None, 10).await.unwrap(), []);
}

/// In the order of bytes, with any page size, and while schedules are added and removed.
pub async fn list_pages_by_name(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let names = ["B", "a", "a-1", "a.1", "a/1", "a:1", "a_1", "aa", "b"];
    for name in names.iter().rev() {
        stored(&fixture, name).await;
    }
    for limit in [1, 2, 100] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.schedules.list(TENANT, after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            seen.extend(page.into_iter().map(|schedule| schedule.name));
        }
        let mut sorted: Vec<&str> = names.to_vec();
        sorted.sort_unstable();
        assert_eq!(seen, sorted);
    }
}

/// By `next_check_at`, then by id, without those that have none or a later one.
pub async fn due_lists_the_schedules_to_check(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut expected = Vec::new();
    for (name, next_check_at) in
        [("c", Some(at(3))), ("a", Some(at(1))), ("always", Some(EVERY_PASS)), ("never", None), ("b", Some(at(3)))]
    {
        let mut schedule = schedule(name);
        schedule.progress.next_check_at = next_check_at;
        assert_eq!(fixture.schedules.insert(schedule.clone()).await.unwrap(), ScheduleInserted::Created);
        expected.extend(next_check_at.map(|next_check_at| (next_check_at, schedule.id)));
    }
    expected.sort_unstable();
    assert_eq!(keys(&due(&fixture, at(0)).await), expected[..1]);
    assert_eq!(keys(&due(&fixture, at(1)).await), expected[..2]);
    assert_eq!(keys(&due(&fixture, at(3)).await), expected);
    for limit in [1, 2, 3] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.schedules.due(at(3), after, limit).await.unwrap();
            assert!(page.snapshots.len() <= limit);
            seen.extend(keys(&page.snapshots));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "in pages of {limit}");
    }
    let after = Some(CheckCursor { next_check_at: expected[2].0, id: expected[2].1 });
    assert_eq!(keys(&fixture.schedules.due(at(3), after, 10).await.unwrap().snapshots), expected[3..]);
    for (now, next) in [(at(0), Some(at(1))), (at(1), Some(at(3))), (at(3), None)] {
        assert_eq!(fixture.schedules.next_check(now).await.unwrap(), next);
    }
}

/// Every part is read back: the records, the counters, and tasks that can be claimed.
pub async fn an_advance_is_one_write(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let made = of_schedule(&was, at(0));
    let many = Covers { until: at(-MINUTE), at_least: 17 };
    let records = vec![
        Record {
            covers: Some(many),
            reason: "outside_window".into(),
            ..record(at(-9 * MINUTE), OccurrenceOutcome::Missed)
        },
        record(at(-MINUTE), OccurrenceOutcome::Coalesced),
        fired(at(0), &made),
        Record { detail: Some("a \u{1F4A5} detail".into()), ..record(at(1), OccurrenceOutcome::Skipped) },
        record(at(2), OccurrenceOutcome::Buffered),
    ];
    let wanted = Advance { next_run_at: Some(at(MINUTE)), next_check_at: Some(at(MINUTE)), ..advance(&was, records) };
    let advanced = fixture.schedules.advance(None, vec![wanted]).await.unwrap().unwrap().remove(0);
    let Advanced::Done { waiting, recorded } = advanced else { panic!("{advanced:?}") };
    assert_eq!(recorded, [at(-9 * MINUTE), at(-MINUTE), at(0), at(1), at(2)]);
    let [(lane, due_at)] = waiting.as_slice() else { panic!("{waiting:?}") };
    assert_eq!((&lane.key, *due_at), (&made.lane, at(0)));
    let progress = Progress {
        next_run_at: Some(at(MINUTE)),
        next_check_at: Some(at(MINUTE)),
        last_run_at: Some(at(0)),
        run_count: 1,
        missed_count: 18,
        skipped_count: 1,
    };
    assert_eq!(get(&fixture, &was).await, Some(Schedule { revision: 2, progress, ..was.clone() }));
    expect_records(&occurrences(&fixture, &was).await, &made, many);
    let task = fixture.find(TENANT, made.id).await.expect("the advance made it");
    assert_eq!(task.state(), State::Pending);
    assert_eq!(task.body.schedule_id, Some(was.id));
    assert_eq!(task.execute_at, at(0));
    assert_eq!(fixture.lease(lane.id, 10).await.len(), 1);
}

/// Expects the records of [`an_advance_is_one_write`], newest first.
fn expect_records(records: &[Occurrence], task: &NewTask, many: Covers) {
    let [buffered, skipped, fired, coalesced, missed] = records else { panic!("{records:?}") };
    assert_eq!(buffered.outcome, OccurrenceOutcome::Buffered);
    assert_eq!(skipped.outcome, OccurrenceOutcome::Skipped);
    assert_eq!(skipped.detail.as_deref(), Some("a \u{1F4A5} detail"));
    assert_eq!(fired.outcome, OccurrenceOutcome::Fired);
    assert_eq!((fired.task, fired.origin, fired.decided_at), (Some(task.id), Origin::Due, at(0)));
    assert_eq!(coalesced.outcome, OccurrenceOutcome::Coalesced);
    assert_eq!(missed.outcome, OccurrenceOutcome::Missed);
    assert_eq!((missed.covers, missed.reason.as_str()), (Some(many), "outside_window"));
}

/// Of any number that are written at once, one succeeds. The others leave no task and no record.
pub async fn an_advance_needs_the_revision(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let barrier = Arc::new(Barrier::new(8));
    let mut tries = JoinSet::new();
    for number in 0..8 {
        let (schedules, barrier) = (Arc::clone(&fixture.schedules), Arc::clone(&barrier));
        let instant = at(number);
        let wanted = advance(&was, vec![fired(instant, &of_schedule(&was, instant))]);
        tries.spawn(async move {
            barrier.wait().await;
            schedules.advance(None, vec![wanted]).await.unwrap().unwrap().remove(0)
        });
    }
    let advanced = tries.join_all().await;
    assert_eq!(advanced.iter().filter(|advanced| matches!(advanced, Advanced::Done { .. })).count(), 1);
    let read = get(&fixture, &was).await.unwrap();
    assert_eq!((read.revision, read.progress.run_count), (2, 1));
    assert_eq!(occurrences(&fixture, &was).await.len(), 1);
    assert_eq!(fixture.list(all_of(TENANT), 100).await.len(), 1);
    // An edit is a write too.
    assert_eq!(replace(&fixture, &read).await, Replaced::Done);
    lost(&fixture, advance(&read, vec![record(at(99), OccurrenceOutcome::Skipped)])).await;
    assert_eq!(occurrences(&fixture, &was).await.len(), 1);
}

/// Its holder writes even after the end of the lease, until another node has held it.
pub async fn an_advance_is_fenced_by_the_term(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let past = lead(&fixture, NodeId::new(1)).await;
    let wanted = advance(&was, vec![fired(at(0), &of_schedule(&was, at(0)))]);
    fixture.advance(20_000);
    assert!(
        fixture.schedules.advance(Some(&past), vec![advance(&was, vec![])]).await.unwrap().is_some(),
        "the lease ran out, but no other node has held it"
    );
    let leader = lead(&fixture, NodeId::new(2)).await;
    let wanted = Advance { revision: 2, ..wanted };
    assert!(fixture.schedules.advance(Some(&past), vec![wanted.clone()]).await.unwrap().is_none());
    assert_eq!(occurrences(&fixture, &was).await, []);
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 0);
    assert_eq!(get(&fixture, &was).await.unwrap().revision, 2);
    let advanced = fixture.schedules.advance(Some(&leader), vec![wanted]).await.unwrap().expect("it leads");
    assert!(matches!(advanced.as_slice(), [Advanced::Done { .. }]));
}

/// Whatever the advance does.
pub async fn an_advance_of_a_removed_schedule_is_lost(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    assert!(fixture.schedules.remove(was.id, 1).await.unwrap());
    lost(&fixture, advance(&was, vec![fired(at(0), &of_schedule(&was, at(0)))])).await;
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 0);
    assert_eq!(occurrences(&fixture, &was).await, []);
}

/// Pauses with a reason, and resumes. Every switch makes a new version.
pub async fn an_advance_switches_a_pause(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let pause = Advance { switch: Some(PauseSwitch::Pause("it failed".into())), now: at(7), ..advance(&was, vec![]) };
    done(&fixture, pause).await;
    let paused = get(&fixture, &was).await.unwrap();
    assert_eq!(paused.pause, Some(SchedulePause { at: at(7), reason: Some("it failed".into()) }));
    assert!(paused.definition.spec.paused);
    assert_eq!((paused.version, paused.updated_at), (2, at(7)));
    done(&fixture, Advance { now: at(8), ..advance(&paused, vec![]) }).await;
    let same = get(&fixture, &was).await.unwrap();
    assert_eq!((&same.pause, same.version, same.updated_at), (&paused.pause, 2, at(7)));
    done(&fixture, Advance { switch: Some(PauseSwitch::Resume), now: at(9), ..advance(&same, vec![]) }).await;
    let resumed = get(&fixture, &was).await.unwrap();
    assert_eq!((resumed.pause, resumed.version, resumed.updated_at), (None, 3, at(9)));
}

/// Their records and counters are as durable.
pub async fn schedules_outlive_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let made = of_schedule(&was, at(0));
    done(&fixture, advance(&was, vec![fired(at(0), &made), record(at(1), OccurrenceOutcome::Buffered)])).await;
    let before = snapshot(&fixture, &was).await;
    let found = occurrences(&fixture, &was).await;
    let fixture = fixture.reopen().await;
    assert_eq!(snapshot(&fixture, &was).await, before);
    assert_eq!(occurrences(&fixture, &was).await, found);
}

/// A lost advance does not affect the others. Answers are in order.
pub async fn many_advances_in_one_call_are_each_by_themselves(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut all = Vec::new();
    for number in 0..250 {
        all.push(stored(&fixture, &format!("schedule-{number}")).await);
    }
    let leader = lead(&fixture, NodeId::new(1)).await;
    let advances = all.iter().enumerate().map(|(number, schedule)| {
        let revision = if number % 3 == 0 { 9 } else { 1 };
        Advance { revision, ..advance(schedule, vec![fired(at(0), &of_schedule(schedule, at(0)))]) }
    });
    let advanced = fixture.schedules.advance(Some(&leader), advances.collect()).await.unwrap().expect("it leads");
    assert_eq!(advanced.len(), all.len());
    let mut expected = BTreeSet::new();
    for (number, advanced) in advanced.iter().enumerate() {
        assert_eq!(matches!(advanced, Advanced::Lost), number % 3 == 0, "{number}");
        if number % 3 != 0 {
            expected.insert(all[number].id);
        }
    }
    let tasks = fixture.list(all_of(TENANT), 1_000).await;
    let made: BTreeSet<ScheduleId> = tasks.iter().filter_map(|task| task.body.schedule_id).collect();
    assert_eq!((tasks.len(), made), (expected.len(), expected));
}
