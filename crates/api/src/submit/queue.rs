//! What the queue of a task says where its submitter does not, and how it spreads what is due at once.
//!
//! Applied after the digest of a submission is taken: what a queue is set to is no part of what
//! was submitted, and a repeated submission is the same one whatever was set meanwhile.

use std::collections::HashMap;

use punctual_client::RetryPolicyFields;
use punctual_core::callback::target_of;
use punctual_core::ids::TaskId;
use punctual_core::lane::Route;
use punctual_core::queues::Settings;
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;

use super::Submitter;
use super::fields::Faults;
use super::members::Verdict;

impl Submitter<'_> {
    /// The task as its queue has it: `policy` is what its submitter said of retries, and `has_timeout` whether it said
    /// how long a run may take.
    pub(super) fn of_queue(&self, mut task: NewTask, policy: Option<&RetryPolicyFields>, has_timeout: bool) -> NewTask {
        let Some(settings) = self.config.queues.settings(self.tenant, &task.lane.queue) else { return task };
        if let Some(base) = settings.retry_policy {
            // What was said was judged before.
            task.body.retry_policy = policy.map_or(base, |given| Faults::default().retry_policy(given, base));
        }
        if let Some(millis) = settings.timeout_millis.filter(|_| !has_timeout) {
            task.body.timeout_millis = millis;
        }
        if task.body.callback.is_none()
            && let Some(callback) = &settings.callback
            && let Ok((_, target)) = target_of(&callback.url)
        {
            task.lane.route = Route::Push(target);
            task.body.callback = Some(callback.clone());
        }
        task.due_at = spread(&settings, task.id, task.execute_at, task.expires_at);
        task
    }
}

/// When a task becomes due: evenly spread over the jitter, by its id, and in time for half of what it has until it
/// expires.
fn spread(settings: &Settings, id: TaskId, execute_at: Timestamp, expires_at: Option<Timestamp>) -> Timestamp {
    let left =
        expires_at.map_or(u64::MAX, |expires_at| u64::try_from(expires_at.millis_since(execute_at)).unwrap_or(0) / 2);
    let most = settings.dispatch_jitter_millis.min(left);
    if most == 0 {
        return execute_at;
    }
    let (high, low) = id.uuid().as_u64_pair();
    // As MurmurHash3 ends: the random bits of an id are few, and it is not ours where they stand.
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    let part = (u128::from(mixed ^ (mixed >> 33)) * u128::from(most)) >> 64;
    execute_at.plus_millis(i64::try_from(part).unwrap_or(0))
}

/// Of the tasks of a batch that a queue spreads over the same time: how many parts they come due in, at least, …
const PARTS: usize = 64;
/// … and how many of them at the same instant, at most.
const TOGETHER: usize = 16;

/// Has the tasks of a batch that are spread over the same time come due in the order of the batch, a few at a time. They
/// are spread as evenly as they were, and the store finds side by side what it claims together: rows stand in the order of
/// submission, and a page that is read and written for every single row of it costs six times as much.
pub(crate) fn keep_order(tasks: &mut [Verdict]) {
    let is_spread = |task: &NewTask| task.due_at != task.execute_at;
    if !tasks.iter().flatten().any(is_spread) {
        return;
    }
    let mut alike: HashMap<(String, Timestamp, Option<Timestamp>), Vec<usize>> = HashMap::new();
    for (at, task) in tasks.iter().enumerate().filter_map(|(at, task)| Some((at, task.as_ref().ok()?))) {
        alike.entry((task.lane.queue.clone(), task.execute_at, task.expires_at)).or_default().push(at);
    }
    for places in alike.into_values() {
        let mut dues: Vec<Timestamp> =
            places.iter().filter_map(|at| tasks[*at].as_ref().ok()).map(|task| task.due_at).collect();
        dues.sort_unstable();
        let together = (places.len() / PARTS).clamp(1, TOGETHER);
        for (places, dues) in places.chunks(together).zip(dues.chunks(together)) {
            let due = dues[dues.len() / 2];
            for at in places {
                if let Ok(task) = &mut tasks[*at] {
                    task.due_at = due;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_client as wire;
    use punctual_core::ids::NodeId;
    use punctual_core::queues::{Change, Queue};
    use punctual_core::retry::{Backoff, RetryPolicy};
    use punctual_core::task::Callback;

    use super::*;
    use crate::state::ApiConfig;

    const AT: Timestamp = Timestamp::from_millis(1_779_472_800_000);

    fn config(settings: Settings) -> ApiConfig {
        let config = ApiConfig::default();
        config.queues.learn([Change::Put(settings, None).apply(Queue::unset("acme", "mail"))]);
        config
    }

    fn submit(config: &ApiConfig, body: &str) -> NewTask {
        let new: wire::NewTask = serde_json::from_str(body).unwrap();
        Submitter::new(config, "acme", AT, NodeId::new(7)).check(new, None).unwrap()
    }

    #[test]
    fn what_the_submitter_does_not_say_the_queue_says() {
        let policy =
            RetryPolicy { max_retries: 9, backoff: Backoff::Fixed, backoff_millis: 500, ..RetryPolicy::default() };
        let config = config(Settings { retry_policy: Some(policy), timeout_millis: Some(7), ..Settings::default() });
        let task = submit(&config, r#"{"type": "t", "queue": "mail"}"#);
        assert_eq!((task.body.retry_policy, task.body.timeout_millis), (policy, 7));
        let task = submit(
            &config,
            r#"{"type": "t", "queue": "mail", "retry_policy": {"max_retries": 1}, "timeout_seconds": 2}"#,
        );
        assert_eq!(task.body.retry_policy, RetryPolicy { max_retries: 1, ..policy });
        assert_eq!(task.body.timeout_millis, 2_000);
        let task = submit(&config, r#"{"type": "t", "queue": "other"}"#);
        assert_eq!((task.body.retry_policy, task.body.timeout_millis), (config.retry_policy, config.timeout_millis));
    }

    #[test]
    fn a_task_that_names_no_callback_goes_where_its_queue_says() {
        let headers = [("authorization".to_owned(), "Bearer of the queue".to_owned())].into();
        let callback = Callback { url: "https://hooks.example/mail".to_owned(), headers };
        let config = config(Settings { callback: Some(callback.clone()), ..Settings::default() });
        let task = submit(&config, r#"{"type": "t", "queue": "mail"}"#);
        assert_eq!(task.lane.route, Route::Push("https://hooks.example:443".to_owned()));
        assert_eq!(task.body.callback, Some(callback));
        let own = submit(&config, r#"{"type": "t", "queue": "mail", "callback_url": "https://own.example/"}"#);
        let own = own.body.callback.expect("its own");
        assert_eq!(
            (own.url.as_str(), own.headers.len()),
            ("https://own.example/", 0),
            "no secret of the queue's goes there"
        );
        assert_eq!(submit(&config, r#"{"type": "t", "queue": "other"}"#).lane.route, Route::Pull);
    }

    #[test]
    fn a_repeated_submission_is_the_same_whatever_was_set_meanwhile() {
        let body = r#"{"type": "t", "queue": "mail", "idempotency_key": "k"}"#;
        let before = submit(&ApiConfig::default(), body);
        let config = config(Settings { timeout_millis: Some(7), dispatch_jitter_millis: 9, ..Settings::default() });
        assert_eq!(submit(&config, body).idempotency, before.idempotency);
    }

    #[test]
    fn tasks_are_spread_evenly_over_the_jitter() {
        const TASKS: i64 = 20_000;
        const BUCKETS: usize = 20;
        let config = config(Settings { dispatch_jitter_millis: 5_000, ..Settings::default() });
        let mut counts = [0_i64; BUCKETS];
        for _ in 0..TASKS {
            let task = submit(&config, r#"{"type": "t", "queue": "mail"}"#);
            assert_eq!(task.execute_at, AT, "what was asked for is kept");
            let late = usize::try_from(task.due_at.millis_since(AT)).unwrap();
            counts[late / (5_000 / BUCKETS)] += 1;
        }
        // Chi-square with 19 degrees of freedom: 43.8 is passed once in a thousand, 60 once in four million.
        let expected = TASKS / 20;
        let chi_square = counts.iter().map(|count| (count - expected).pow(2)).sum::<i64>() / expected;
        assert!(chi_square < 60, "{chi_square}: {counts:?}");
    }

    fn batch(config: &ApiConfig, bodies: impl IntoIterator<Item = &'static str>) -> Vec<Verdict> {
        let mut tasks: Vec<Verdict> = bodies.into_iter().map(|body| Ok(submit(config, body))).collect();
        keep_order(&mut tasks);
        tasks
    }

    fn late(tasks: &[Verdict]) -> Vec<i64> {
        tasks.iter().map(|task| task.as_ref().unwrap()).map(|task| task.due_at.millis_since(task.execute_at)).collect()
    }

    #[test]
    fn a_batch_is_spread_in_its_order_a_few_at_a_time() {
        let config = config(Settings { dispatch_jitter_millis: 5_000, ..Settings::default() });
        let plain = r#"{"type": "t", "queue": "mail"}"#;
        let late_ones = late(&batch(&config, std::iter::repeat_n(plain, 10_000)));
        assert!(late_ones.is_sorted());
        for instant in late_ones.chunk_by(PartialEq::eq) {
            // Two parts may meet by chance.
            assert!(instant.len() <= 8 * TOGETHER, "{} at once", instant.len());
        }
        for tenth in 0..10_i64 {
            let count = late_ones.iter().filter(|late| (tenth * 500..tenth * 500 + 500).contains(late)).count();
            assert!((800..1_200).contains(&count), "{count} in tenth {tenth}");
        }
        let few = late(&batch(&config, std::iter::repeat_n(plain, PARTS)));
        assert!(few.chunk_by(PartialEq::eq).count() > PARTS / 2, "{few:?}");
    }

    #[test]
    fn only_what_is_spread_over_the_same_time_is_put_in_order() {
        let config = config(Settings { dispatch_jitter_millis: 1_000, ..Settings::default() });
        let bodies = [
            r#"{"type": "t", "queue": "mail"}"#,
            r#"{"type": "t", "queue": "other"}"#,
            r#"{"type": "t", "queue": "mail", "execute_at": "2026-05-23T18:00:00Z"}"#,
            r#"{"type": "t", "queue": "mail", "expires_at": "2026-05-22T18:00:00.100Z"}"#,
        ];
        let tasks = batch(&config, bodies.into_iter().cycle().take(400));
        let late = late(&tasks);
        for (kind, most) in [(0, 1_000), (1, 0), (2, 1_000), (3, 50)] {
            let of_kind: Vec<i64> = late.iter().skip(kind).step_by(4).copied().collect();
            assert!(of_kind.iter().all(|late| (0..=most).contains(late)), "{kind}: {of_kind:?}");
            assert!(of_kind.is_sorted(), "{kind}: {of_kind:?}");
        }
    }

    #[test]
    fn a_task_becomes_due_before_it_expires() {
        let config = config(Settings { dispatch_jitter_millis: 3_600_000, ..Settings::default() });
        for _ in 0..100 {
            let text = r#"{"type": "t", "queue": "mail", "expires_at": "2026-05-22T18:00:01Z"}"#;
            assert!(submit(&config, text).due_at <= AT.plus_millis(500));
        }
    }
}
