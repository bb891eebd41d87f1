//! How a batch is chosen, by example.

use super::*;

fn queue_of(bounds: QueueBounds, limit: BatchLimit) -> JobQueue<&'static str> {
    JobQueue::new(bounds, limit, Duration::ZERO)
}

fn queue(jobs: usize, bytes: usize) -> JobQueue<&'static str> {
    queue_of(QueueBounds { jobs, rows: 1_000, bytes, age: Duration::MAX }, BatchLimit { jobs: 4, rows: 100 })
}

const ROOMY: QueueBounds = QueueBounds { jobs: 1_000, rows: 1_000_000, bytes: 1_000_000, age: Duration::MAX };
const ALL: BatchLimit = BatchLimit { jobs: 100, rows: 100_000 };

fn wide() -> JobQueue<&'static str> {
    queue_of(ROOMY, ALL)
}

#[test]
fn each_class_is_bounded_by_itself() {
    let queue = queue(2, 1_000);
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "a").unwrap();
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "b").unwrap();
    assert!(matches!(
        queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "c"),
        Err(StoreError::Overloaded)
    ));
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "d").unwrap();
    queue.put(WriteClass::Urgent, Weight { bytes: 1, rows: 1 }, "e").unwrap();
    assert_eq!(queue.take().unwrap(), ["e", "d", "a", "b"]);
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "c").unwrap();
}

#[test]
fn weight_is_bounded_but_one_job_always_fits() {
    let queue = queue(100, 10);
    queue.put(WriteClass::Submission, Weight { bytes: 1_000, rows: 1 }, "huge").unwrap();
    assert!(matches!(
        queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "small"),
        Err(StoreError::Overloaded)
    ));
    assert_eq!(queue.take().unwrap(), ["huge"]);
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "small").unwrap();
}

#[test]
fn rows_are_bounded_but_one_job_always_fits() {
    let queue = queue(100, 1_000);
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 5_000 }, "wide").unwrap();
    assert!(matches!(
        queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "narrow"),
        Err(StoreError::Overloaded)
    ));
    assert_eq!(queue.take().unwrap(), ["wide"]);
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "narrow").unwrap();
}

#[test]
fn nothing_joins_a_stuck_class() {
    let queue = queue_of(QueueBounds { age: Duration::ZERO, ..ROOMY }, ALL);
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "first").unwrap();
    assert!(matches!(
        queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "second"),
        Err(StoreError::Overloaded)
    ));
    queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, "of another class").unwrap();
    assert_eq!(queue.take().unwrap(), ["first", "of another class"]);
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "second").unwrap();
}

#[test]
fn a_batch_ends_at_its_jobs_and_at_its_rows() {
    let queue = queue(100, 1_000);
    for job in ["a", "b", "c", "d", "e"] {
        queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, job).unwrap();
    }
    assert_eq!(queue.take().unwrap(), ["a", "b", "c", "d"]);
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 100 }, "wide").unwrap();
    assert_eq!(queue.take().unwrap(), ["wide"]);
    assert_eq!(queue.take().unwrap(), ["e"]);
}

#[test]
fn progress_and_submissions_take_turns() {
    let queue = queue(100, 1_000);
    for job in ["s1", "s2", "s3"] {
        queue.put(WriteClass::Submission, Weight { bytes: 1, rows: 1 }, job).unwrap();
    }
    for job in ["p1", "p2", "p3"] {
        queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, job).unwrap();
    }
    assert_eq!(queue.take().unwrap(), ["p1", "s1", "p2", "s2"]);
    assert_eq!(queue.take().unwrap(), ["p3", "s3"]);
}

#[test]
fn a_closed_queue_is_emptied_first() {
    let queue = queue(100, 1_000);
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "a").unwrap();
    queue.close();
    assert!(queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "b").is_err());
    assert_eq!(queue.take().unwrap(), ["a"]);
    assert!(queue.take().is_none());
}

#[test]
fn a_small_job_passes_large_ones() {
    let queue = wide();
    for job in ["large 1", "large 2", "large 3"] {
        queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 256 }, job).unwrap();
    }
    let mut batch = queue.begin().unwrap();
    assert_eq!(queue.next(&mut batch), Some("large 1"));
    // It arrives while the large job runs.
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 2 }, "small").unwrap();
    assert_eq!(queue.next(&mut batch), Some("small"));
    assert_eq!(queue.next(&mut batch), None, "it ends early, so that the small job is answered");
    assert_eq!(queue.take().unwrap(), ["large 2", "large 3"]);
}

#[test]
fn only_so_many_small_jobs_pass_a_large_one() {
    let queue = wide();
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1_000 }, "large").unwrap();
    for _ in 0..500 {
        queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "small").unwrap();
    }
    let mut passed = 0;
    while let Some(batch) = queue.take()
        && !batch.contains(&"large")
    {
        passed += batch.len();
    }
    assert!((100..=200).contains(&passed), "{passed}");
}

#[test]
fn an_early_end_waits_for_its_interval() {
    let queue = JobQueue::new(ROOMY, ALL, Duration::from_hours(1));
    for _ in 0..3 {
        queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "small").unwrap();
        queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 500 }, "large").unwrap();
    }
    assert_eq!(queue.take().unwrap(), ["small"; 3]);
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "small").unwrap();
    assert_eq!(queue.take().unwrap(), ["small", "large", "large", "large"]);
}

#[test]
fn parts_stay_in_order_and_are_refused_together() {
    let queue = queue_of(QueueBounds { rows: 600, ..ROOMY }, ALL);
    let part = |job, rows| (Weight { bytes: 1, rows }, job);
    queue.put_parts(WriteClass::Progress, vec![part("one", 256), part("two", 256), part("three", 1)]).unwrap();
    let too_much = vec![part("four", 50), part("five", 50)];
    assert!(matches!(queue.put_parts(WriteClass::Progress, too_much), Err(StoreError::Overloaded)));
    assert_eq!(queue.take().unwrap(), ["one", "two", "three"]);
    assert_eq!(queue.len(), 0);
}

#[test]
fn later_jobs_wait_for_the_next_batch() {
    let queue = wide();
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "first").unwrap();
    let mut batch = queue.begin().unwrap();
    assert_eq!(queue.next(&mut batch), Some("first"));
    queue.put(WriteClass::Progress, Weight { bytes: 1, rows: 1 }, "second").unwrap();
    assert_eq!(queue.next(&mut batch), None);
    assert_eq!(queue.take().unwrap(), ["second"]);
}
