//! The queue by example, and against a list that is searched from its front.

use proptest::prelude::*;

use super::*;

const BOUNDS: QueueBounds = QueueBounds { jobs: 4, rows: 1_000, bytes: 1_000, age: Duration::MAX };

fn weight(rows: usize) -> Weight {
    Weight { bytes: 1, rows }
}

fn is_refused<T>(put: &Result<T, StoreError>) -> bool {
    matches!(put, Err(StoreError::Overloaded))
}

#[test]
fn jobs_rows_and_bytes_are_bounded() {
    let now = Instant::now();
    let bounds =
        [QueueBounds { jobs: 1, ..BOUNDS }, QueueBounds { rows: 9, ..BOUNDS }, QueueBounds { bytes: 1, ..BOUNDS }];
    for bounds in bounds {
        let mut queue = WriteQueue::default();
        queue.put("first", weight(5), &bounds, now).unwrap();
        assert!(is_refused(&queue.put("second", weight(5), &bounds, now)), "{bounds:?}");
        queue.pop(Size::Small).unwrap();
        queue.put("second", weight(5), &bounds, now).unwrap();
    }
}

#[test]
fn an_empty_queue_takes_a_call_of_any_size() {
    let mut queue = WriteQueue::default();
    let huge = Weight { bytes: usize::MAX, rows: usize::MAX };
    queue.put("huge", huge, &BOUNDS, Instant::now()).unwrap();
    assert!(is_refused(&queue.put("small", Weight::SMALL, &BOUNDS, Instant::now())));
    assert_eq!(queue.pop(Size::Large).unwrap().job, "huge");
}

#[test]
fn nothing_joins_a_job_that_has_waited_too_long() {
    let bounds = QueueBounds { age: Duration::from_secs(5), ..BOUNDS };
    let (mut queue, began) = (WriteQueue::default(), Instant::now());
    queue.put("first", weight(1), &bounds, began).unwrap();
    queue.put("in time", weight(1), &bounds, began + bounds.age).unwrap();
    let late = began + bounds.age + Duration::from_millis(1);
    assert!(is_refused(&queue.put("too late", weight(1), &bounds, late)));
    queue.pop(Size::Small).unwrap();
    queue.put("behind a younger one", weight(1), &bounds, late).unwrap();
}

#[test]
fn parts_are_refused_together_and_count_as_large() {
    let (mut queue, now) = (WriteQueue::default(), Instant::now());
    queue.put_parts(vec![(weight(600), "one"), (weight(1), "two")], &BOUNDS, now).unwrap();
    let too_much = vec![(weight(300), "three"), (weight(300), "four")];
    assert!(is_refused(&queue.put_parts(too_much, &BOUNDS, now)));
    assert!(queue.front(Size::Small).is_none());
    assert_eq!([queue.pop(Size::Large).unwrap().job, queue.pop(Size::Large).unwrap().job], ["one", "two"]);
    assert!(queue.is_empty());
}

/// One thing done to a queue.
#[derive(Clone, Debug)]
enum Step {
    Put { rows: usize, bytes: usize },
    Parts { rows: Vec<usize> },
    Pop(Size),
    Withdraw { back: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![Just(Size::Small), Just(Size::Large)];
    prop_oneof![
        (0_usize..300, 0_usize..400).prop_map(|(rows, bytes)| Step::Put { rows, bytes }),
        prop::collection::vec(0_usize..300, 1..3).prop_map(|rows| Step::Parts { rows }),
        size.prop_map(Step::Pop),
        (0_u64..6).prop_map(|back| Step::Withdraw { back }),
    ]
}

/// The queue as a plain list: number, size and weight of every job, in the order they came.
#[derive(Default)]
struct Model {
    jobs: Vec<(u64, Size, Weight)>,
    last: u64,
}

impl Model {
    fn admits(&self, added: Weight) -> bool {
        let rows = self.jobs.iter().map(|(_, _, weight)| weight.rows).sum::<usize>() + added.rows;
        let bytes = self.jobs.iter().map(|(_, _, weight)| weight.bytes).sum::<usize>() + added.bytes;
        let fits = self.jobs.len() < BOUNDS.jobs && rows <= BOUNDS.rows && bytes <= BOUNDS.bytes;
        self.jobs.is_empty() || fits
    }

    fn push(&mut self, size: Size, weight: Weight) -> u64 {
        self.last += 1;
        self.jobs.push((self.last, size, weight));
        self.last
    }

    fn remove(&mut self, which: impl FnMut(&(u64, Size, Weight)) -> bool) -> Option<u64> {
        let at = self.jobs.iter().position(which)?;
        Some(self.jobs.remove(at).0)
    }
}

proptest! {
    #[test]
    fn the_queue_is_a_bounded_list(steps in prop::collection::vec(step(), 1..60)) {
        let (mut queue, mut model, now) = (WriteQueue::default(), Model::default(), Instant::now());
        for step in steps {
            match step {
                Step::Put { rows, bytes } => {
                    let weight = Weight { bytes, rows };
                    let admits = model.admits(weight);
                    let put = queue.put(model.last + 1, weight, &BOUNDS, now);
                    prop_assert_eq!(put.is_ok(), admits);
                    if admits {
                        let size = if rows <= 128 { Size::Small } else { Size::Large };
                        prop_assert_eq!(put.unwrap(), model.push(size, weight));
                    }
                }
                Step::Parts { rows } => {
                    let parts: Vec<_> = rows.iter().map(|rows| weight(*rows)).zip(model.last + 1..).collect();
                    let admits = model.admits(Weight { bytes: rows.len(), rows: rows.iter().sum() });
                    prop_assert_eq!(queue.put_parts(parts, &BOUNDS, now).is_ok(), admits);
                    for rows in rows.into_iter().filter(|_| admits) {
                        model.push(Size::Large, weight(rows));
                    }
                }
                Step::Pop(size) => {
                    let front = queue.front(size).map(|queued| queued.job);
                    let first = model.remove(|(_, other, _)| *other == size);
                    prop_assert_eq!(front, first);
                    prop_assert_eq!(queue.pop(size).map(|queued| queued.job), first);
                }
                Step::Withdraw { back } => {
                    let number = model.last.saturating_sub(back);
                    prop_assert_eq!(queue.withdraw(number), model.remove(|(other, _, _)| *other == number));
                }
            }
            prop_assert_eq!((queue.len(), queue.is_empty()), (model.jobs.len(), model.jobs.is_empty()));
        }
        // The sums return to zero with the last job.
        for size in Size::ALL {
            while queue.pop(size).is_some() {}
        }
        prop_assert_eq!((queue.rows, queue.bytes), (0, 0));
    }
}
