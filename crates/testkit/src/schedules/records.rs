//! Records of instants: each is decided once, waits in order, is watched and is pruned.

use punctual_core::schedules::plan::{CoveringRecord, Covers, Cut, Origin, WaitingOccurrence};
use punctual_core::schedules::{Advance, FiredTask, Occurrence, OccurrenceOutcome, Record};
use punctual_core::state::{Event, State};
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Prunable;

use super::MINUTE;
use super::made::{advance, done, due, fired, get, lost, occurrences, of_schedule, record, snapshot, stored};
use crate::fixtures::{TENANT, at};
use crate::store::{StoreFactory, StoreFixture, all_of, complete};

/// At any revision. The count of runs stays correct.
pub async fn an_instant_fires_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let first = of_schedule(&was, at(0));
    assert_eq!(done(&fixture, advance(&was, vec![fired(at(0), &first)])).await, [at(0)]);
    for (revision, again) in [
        (2, fired(at(0), &of_schedule(&was, at(0)))),
        (3, Record { waited: true, ..fired(at(0), &of_schedule(&was, at(0))) }),
        (4, Record { origin: Origin::Backfill, ..fired(at(0), &of_schedule(&was, at(0))) }),
        (5, Record { origin: Origin::Backfill, ..record(at(0), OccurrenceOutcome::Buffered) }),
        (6, record(at(0), OccurrenceOutcome::Missed)),
    ] {
        assert_eq!(done(&fixture, Advance { revision, ..advance(&was, vec![again]) }).await, []);
    }
    let found = occurrences(&fixture, &was).await;
    assert_eq!(
        found.iter().map(|one| (one.outcome, one.task)).collect::<Vec<_>>(),
        [(OccurrenceOutcome::Fired, Some(first.id))]
    );
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 1);
    assert_eq!(get(&fixture, &was).await.unwrap().progress.run_count, 1);
}

/// To its final outcome. A record that no longer says buffered is kept.
pub async fn a_waiting_occurrence_changes_its_record(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let waiting = vec![record(at(0), OccurrenceOutcome::Buffered), record(at(1), OccurrenceOutcome::Buffered)];
    assert_eq!(done(&fixture, advance(&was, waiting)).await.len(), 2);
    let made = of_schedule(&was, at(0));
    let not_waited =
        Advance { revision: 2, ..advance(&was, vec![fired(at(0), &made), record(at(1), OccurrenceOutcome::Skipped)]) };
    assert_eq!(done(&fixture, not_waited).await, [], "their instants have records already");
    let after = vec![
        Record { waited: true, ..fired(at(0), &made) },
        Record { waited: true, ..record(at(1), OccurrenceOutcome::Skipped) },
        Record { waited: true, ..record(at(2), OccurrenceOutcome::Skipped) },
    ];
    assert_eq!(done(&fixture, Advance { revision: 3, ..advance(&was, after) }).await, [at(0), at(1)]);
    let found = occurrences(&fixture, &was).await;
    let found: Vec<_> = found.iter().map(|one| (one.instant, one.outcome, one.task)).collect();
    assert_eq!(found, [(at(1), OccurrenceOutcome::Skipped, None), (at(0), OccurrenceOutcome::Fired, Some(made.id))]);
    assert!(snapshot(&fixture, &was).await.buffered.is_empty());
}

/// Those that fired or wait are left as they are.
pub async fn a_backfill_fires_instants_that_did_not_run(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let ran = of_schedule(&was, at(0));
    let records = vec![
        fired(at(0), &ran),
        record(at(1), OccurrenceOutcome::Skipped),
        record(at(2), OccurrenceOutcome::Missed),
        record(at(3), OccurrenceOutcome::Coalesced),
        record(at(4), OccurrenceOutcome::Buffered),
    ];
    done(&fixture, advance(&was, records)).await;
    let filled = |instant| Record { origin: Origin::Backfill, ..record(instant, OccurrenceOutcome::Buffered) };
    let backfill = (0..6).map(|number| filled(at(number))).collect();
    let written = done(&fixture, Advance { revision: 2, ..advance(&was, backfill) }).await;
    assert_eq!(written, [at(1), at(2), at(3), at(5)]);
    let found = occurrences(&fixture, &was).await;
    assert_eq!(found[5].task, Some(ran.id));
    assert!(found[..5].iter().all(|one| one.outcome == OccurrenceOutcome::Buffered));
    let origins: Vec<Origin> = snapshot(&fixture, &was).await.buffered.iter().map(|waiting| waiting.origin).collect();
    assert_eq!(origins, [Origin::Due, Origin::Backfill, Origin::Backfill, Origin::Backfill, Origin::Backfill]);
}

/// What the record says besides stays, and so do the records of other schedules.
pub async fn a_cut_keeps_what_a_backfill_does_not_run(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (was, other) = (stored(&fixture, "nightly").await, stored(&fixture, "other").await);
    let many = |until, at_least| Some(Covers { until: at(until), at_least });
    let missed = |instant, covers| Record {
        covers,
        reason: "outside_window".to_owned(),
        detail: Some("away".to_owned()),
        ..record(at(instant), OccurrenceOutcome::Missed)
    };
    for of in [&was, &other] {
        done(&fixture, advance(of, vec![missed(0, many(100, 100)), missed(200, many(300, 100))])).await;
    }
    let filled = |instant| Record { origin: Origin::Backfill, ..record(at(instant), OccurrenceOutcome::Buffered) };
    let cuts = vec![
        Cut { instant: at(0), parts: vec![(at(0), None), (at(3), many(100, 97))] },
        Cut { instant: at(200), parts: vec![(at(201), many(300, 99))] },
    ];
    let backfill =
        Advance { revision: 2, now: at(500), cuts, ..advance(&was, vec![filled(1), filled(2), filled(200)]) };
    assert_eq!(done(&fixture, backfill).await, [at(1), at(2), at(200)]);
    let records =
        |found: Vec<Occurrence>| found.into_iter().rev().map(|one| (one.instant, one.covers)).collect::<Vec<_>>();
    let found = occurrences(&fixture, &was).await;
    let skipped: Vec<_> = found.iter().filter(|one| one.outcome != OccurrenceOutcome::Buffered).collect();
    assert!(skipped.iter().all(|one| one.outcome == OccurrenceOutcome::Missed && one.decided_at == at(0)), "{found:?}");
    assert!(skipped.iter().all(|one| one.reason == "outside_window" && one.detail.as_deref() == Some("away")));
    let expected = [(0, None), (1, None), (2, None), (3, many(100, 97)), (200, None), (201, many(300, 99))];
    assert_eq!(records(found), expected.map(|(instant, covers)| (at(instant), covers)));
    let untouched = [(at(0), many(100, 100)), (at(200), many(300, 100))];
    assert_eq!(records(occurrences(&fixture, &other).await), untouched);
    // An advance that is lost cuts nothing.
    let late = Cut { instant: at(0), parts: vec![(at(0), None)] };
    lost(&fixture, Advance { revision: 1, cuts: vec![late], ..advance(&other, Vec::new()) }).await;
    assert_eq!(records(occurrences(&fixture, &other).await), untouched);
}

/// By instant, of this schedule only.
pub async fn covering_lists_the_records_of_many_instants(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (was, other) = (stored(&fixture, "nightly").await, stored(&fixture, "other").await);
    let many = |instant, until| Record {
        covers: Some(Covers { until: at(until), at_least: 17 }),
        ..record(at(instant), OccurrenceOutcome::Missed)
    };
    let records = vec![many(0, 10), record(at(10), OccurrenceOutcome::Missed), many(20, 30), many(40, 50)];
    done(&fixture, advance(&was, records)).await;
    done(&fixture, advance(&other, vec![many(20, 30)])).await;
    for (from, to, expected) in
        [(0, 9, vec![0]), (10, 19, vec![]), (9, 20, vec![0, 20]), (25, 26, vec![20]), (0, 99, vec![0, 20, 40])]
    {
        let found = fixture.schedules.covering(was.id, at(from), at(to)).await.unwrap();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|instant| CoveringRecord {
                instant: at(instant),
                covers: Covers { until: at(instant + 10), at_least: 17 },
            })
            .collect();
        assert_eq!(found, expected, "{from} to {to}");
    }
}

/// However often it is tried.
pub async fn only_written_records_are_counted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let many = Covers { until: at(1_000), at_least: 900 };
    let records = vec![
        record(at(0), OccurrenceOutcome::Skipped),
        record(at(1), OccurrenceOutcome::Missed),
        record(at(2), OccurrenceOutcome::Coalesced),
        record(at(3), OccurrenceOutcome::Buffered),
        Record { covers: Some(many), ..record(at(100), OccurrenceOutcome::Missed) },
    ];
    let counts = async || {
        let progress = get(&fixture, &was).await.unwrap().progress;
        (progress.skipped_count, progress.missed_count)
    };
    for revision in 1..=3 {
        done(&fixture, Advance { revision, ..advance(&was, records.clone()) }).await;
        assert_eq!(counts().await, (1, 902));
    }
    let refused = |instant, waited| Record {
        origin: Origin::Backfill,
        waited,
        ..record(at(instant), OccurrenceOutcome::Skipped)
    };
    done(&fixture, Advance { revision: 4, ..advance(&was, vec![refused(1, false), refused(5, false)]) }).await;
    let ends = Record { waited: true, ..record(at(3), OccurrenceOutcome::Skipped) };
    done(&fixture, Advance { revision: 5, ..advance(&was, vec![ends, refused(6, true)]) }).await;
    assert_eq!(counts().await, (2, 902), "only the one that waited");
}

/// By origin, then by instant.
pub async fn waiting_occurrences_are_listed_in_order(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let of = |instant, origin| Record { origin, ..record(at(instant), OccurrenceOutcome::Buffered) };
    let records = vec![
        of(1, Origin::Backfill),
        of(9, Origin::Due),
        of(5, Origin::Manual),
        of(2, Origin::Backfill),
        of(7, Origin::Due),
    ];
    done(&fixture, advance(&was, records)).await;
    let expected = [
        (at(7), Origin::Due),
        (at(9), Origin::Due),
        (at(5), Origin::Manual),
        (at(1), Origin::Backfill),
        (at(2), Origin::Backfill),
    ];
    let expected = expected.map(|(instant, origin)| WaitingOccurrence { instant, origin });
    assert_eq!(snapshot(&fixture, &was).await.buffered, expected);
    let mut all = due(&fixture, at(MINUTE)).await;
    assert_eq!(all.remove(0).buffered, expected, "a page of due schedules shows the same");
}

/// Waiting, running, asked to stop, finished or removed, as it is at each read.
pub async fn a_fired_task_is_watched_until_it_finishes(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let (one, two) = (of_schedule(&was, at(0)), of_schedule(&was, at(1)));
    let unwatched = FiredTask { task: Box::new(two.clone()), watched: false };
    let unwatched = Record { fired: Some(unwatched), ..fired(at(1), &two) };
    done(&fixture, advance(&was, vec![fired(at(0), &one), unwatched])).await;
    let watched = async || {
        let watched = snapshot(&fixture, &was).await.watched;
        watched.iter().map(|one| (one.instant, one.task, one.state, one.stop_requested)).collect::<Vec<_>>()
    };
    assert_eq!(watched().await, [(at(0), one.id, Some(State::Pending), false)]);
    let lane = fixture.find(TENANT, one.id).await.unwrap().lane.id;
    let running = fixture.lease(lane, 1).await.remove(0);
    assert_eq!((running.id, watched().await), (one.id, vec![(at(0), one.id, Some(State::Running), false)]));
    let stopping = fixture.apply(&running, Event::Cancel).await;
    assert_eq!(watched().await, [(at(0), one.id, Some(State::Running), true)]);
    fixture.apply(&stopping, complete(None)).await;
    assert_eq!(watched().await, [(at(0), one.id, Some(State::Cancelled), false)], "until an advance says so");
    done(&fixture, Advance { revision: 2, finished: vec![at(0)], ..advance(&was, vec![]) }).await;
    assert_eq!(watched().await, []);
    assert_eq!(occurrences(&fixture, &was).await.len(), 2, "the records stay");
}

/// Only the records of one schedule.
pub async fn occurrences_page_from_the_newest(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (was, other) = (stored(&fixture, "nightly").await, stored(&fixture, "other").await);
    let skipped = |number: i64| record(at(number * MINUTE), OccurrenceOutcome::Skipped);
    done(&fixture, advance(&was, (-5..5).map(skipped).collect())).await;
    done(&fixture, advance(&other, vec![skipped(0)])).await;
    for limit in [1, 3, 100] {
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let page = fixture.schedules.occurrences(was.id, before, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            before = Some(last.instant);
            seen.extend(page.iter().map(|one| one.instant));
        }
        assert_eq!(seen, (-5..5).rev().map(|number| at(number * MINUTE)).collect::<Vec<_>>());
    }
}

/// A step removes at most its limit, and younger records stay.
pub async fn old_occurrences_are_pruned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let was = stored(&fixture, "nightly").await;
    let old = vec![
        fired(at(0), &of_schedule(&was, at(0))),
        record(at(1), OccurrenceOutcome::Buffered),
        record(at(2), OccurrenceOutcome::Skipped),
        record(at(3), OccurrenceOutcome::Missed),
        record(at(4), OccurrenceOutcome::Coalesced),
    ];
    done(&fixture, advance(&was, old)).await;
    let young =
        Advance { revision: 2, now: at(1_000), ..advance(&was, vec![record(at(5), OccurrenceOutcome::Skipped)]) };
    done(&fixture, young).await;
    let prune = async || fixture.database.prune(Prunable::Occurrences, at(1_000), 2).await.unwrap();
    let first = prune().await;
    assert_eq!((first.removed, first.more), (2, true));
    assert_eq!(prune().await.removed, 1);
    assert_eq!(prune().await.removed, 0);
    let left: Vec<Timestamp> = occurrences(&fixture, &was).await.iter().map(|one| one.instant).collect();
    assert_eq!(left, [at(5), at(1), at(0)], "one is young, one waits, one is watched");
    done(&fixture, Advance { revision: 3, finished: vec![at(0)], ..advance(&was, vec![]) }).await;
    assert_eq!(prune().await.removed, 1);
}
