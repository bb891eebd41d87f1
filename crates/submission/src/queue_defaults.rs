//! What a queue's settings add to a submitted task: defaults, and a spread of the due instants.
//!
//! Applied after the fingerprint is taken. Invariant: a queue's settings are no part of the
//! submission, so a repeated submission matches whatever was set meanwhile.

use std::collections::HashMap;

use punctual_client::RetryPolicyFields;
use punctual_core::callback::target_of;
use punctual_core::ids::TaskId;
use punctual_core::lane::Route;
use punctual_core::queues::Settings;
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;

use crate::TaskValidator;
use crate::faults::Faults;

impl TaskValidator<'_> {
    /// The task with its queue's defaults. `policy` has the retry fields that the submitter gave,
    /// and `has_timeout` says whether it gave a timeout.
    pub(crate) fn with_queue_defaults(
        &self,
        mut task: NewTask,
        policy: Option<&RetryPolicyFields>,
        has_timeout: bool,
    ) -> NewTask {
        let Some(settings) = self.rules.queues.settings(self.tenant, &task.lane.queue) else { return task };
        if let Some(base) = &settings.retry_policy {
            // The given fields were checked before, so this finds no fault.
            task.body.retry_policy =
                policy.map_or_else(|| base.clone(), |given| Faults::default().retry_policy(given, base));
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

/// When a task is due: spread evenly over the queue's jitter by the task's id. The delay is at most
/// half of the time until the task expires.
fn spread(settings: &Settings, id: TaskId, execute_at: Timestamp, expires_at: Option<Timestamp>) -> Timestamp {
    let left =
        expires_at.map_or(u64::MAX, |expires_at| u64::try_from(expires_at.millis_since(execute_at)).unwrap_or(0) / 2);
    let max = settings.dispatch_jitter_millis.min(left);
    if max == 0 {
        return execute_at;
    }
    let (high, low) = id.uuid().as_u64_pair();
    // The finaliser of MurmurHash3: an id has few random bits, at positions that may change.
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    let part = (u128::from(mixed ^ (mixed >> 33)) * u128::from(max)) >> 64;
    let due_at = execute_at.plus_millis(i64::try_from(part).unwrap_or(0));
    // A task that is due before its `execute_at` would run early, and one after its expiry never.
    debug_assert!(due_at >= execute_at && expires_at.is_none_or(|expires_at| due_at <= expires_at.max(execute_at)));
    due_at
}

/// The minimum number of groups in which the spread tasks of a batch are due …
const GROUPS_MIN: usize = 64;
/// … and the maximum number of tasks in such a group.
const GROUP_MAX: usize = 16;

/// Gives the tasks of a batch that are spread over the same time their due instants in batch order,
/// in small groups. The spread stays as even as it was. A claim then finds its rows side by side:
/// rows are stored in submission order, and a page that is read and written for each of its rows
/// costs six times as much.
pub fn keep_order<E>(tasks: &mut [Result<NewTask, E>]) {
    let is_spread = |task: &NewTask| task.due_at != task.execute_at;
    if !tasks.iter().flatten().any(is_spread) {
        return;
    }
    let mut alike: HashMap<(String, Timestamp, Option<Timestamp>), Vec<usize>> = HashMap::new();
    for (at, task) in tasks.iter().enumerate().filter_map(|(at, task)| Some((at, task.as_ref().ok()?))) {
        alike.entry((task.lane.queue.clone(), task.execute_at, task.expires_at)).or_default().push(at);
    }
    for positions in alike.into_values() {
        let mut dues: Vec<Timestamp> =
            positions.iter().filter_map(|at| tasks[*at].as_ref().ok()).map(|task| task.due_at).collect();
        dues.sort_unstable();
        let group = (positions.len() / GROUPS_MIN).clamp(1, GROUP_MAX);
        for (positions, dues) in positions.chunks(group).zip(dues.chunks(group)) {
            let due = dues[dues.len() / 2];
            for at in positions {
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
    use punctual_core::queues::{Queue, QueueChange};
    use punctual_core::retry::{Backoff, RetryPolicy};
    use punctual_core::task::{Callback, CallbackBody};

    use super::*;
    use crate::{BatchContext, SubmissionError, SubmissionRules};

    type Member = Result<NewTask, SubmissionError>;

    const AT: Timestamp = Timestamp::from_millis(1_779_472_800_000);

    fn rules(settings: Settings) -> SubmissionRules {
        let rules = SubmissionRules::default();
        let queue = QueueChange::Put(settings, None).apply(Queue::unset("acme", "mail"));
        rules.queues.update(Queue { change_number: 1, ..queue });
        rules
    }

    fn submit(rules: &SubmissionRules, body: &str) -> NewTask {
        let new: wire::NewTask = serde_json::from_str(body).unwrap();
        TaskValidator::new(rules, "acme", AT, NodeId::new(7))
            .check(&mut Faults::default(), new, None, &BatchContext::none())
            .unwrap()
    }

    #[test]
    fn a_queue_fills_in_what_the_submitter_left_out() {
        let policy =
            RetryPolicy { max_retries: 9, backoff: Backoff::Fixed, backoff_millis: 500, ..RetryPolicy::default() };
        let rules =
            rules(Settings { retry_policy: Some(policy.clone()), timeout_millis: Some(7), ..Settings::default() });
        let task = submit(&rules, r#"{"type": "t", "queue": "mail"}"#);
        assert_eq!((&task.body.retry_policy, task.body.timeout_millis), (&policy, 7));
        let task = submit(
            &rules,
            r#"{"type": "t", "queue": "mail", "retry_policy": {"max_retries": 1}, "timeout_seconds": 2}"#,
        );
        assert_eq!(task.body.retry_policy, RetryPolicy { max_retries: 1, ..policy });
        assert_eq!(task.body.timeout_millis, 2_000);
        let task = submit(&rules, r#"{"type": "t", "queue": "other"}"#);
        assert_eq!((&task.body.retry_policy, task.body.timeout_millis), (&rules.retry_policy, rules.timeout_millis));
    }

    #[test]
    fn a_task_without_a_callback_gets_the_queues() {
        let headers = [("authorization".to_owned(), "Bearer of the queue".to_owned())].into();
        let callback = Callback { url: "https://hooks.example/mail".to_owned(), headers, body: CallbackBody::Envelope };
        let rules = rules(Settings { callback: Some(callback.clone()), ..Settings::default() });
        let task = submit(&rules, r#"{"type": "t", "queue": "mail"}"#);
        assert_eq!(task.lane.route, Route::Push("https://hooks.example:443".to_owned()));
        assert_eq!(task.body.callback, Some(callback));
        let own = submit(&rules, r#"{"type": "t", "queue": "mail", "callback_url": "https://own.example/"}"#);
        let own = own.body.callback.expect("its own");
        assert_eq!(
            (own.url.as_str(), own.headers.len()),
            ("https://own.example/", 0),
            "no secret of the queue's goes there"
        );
        assert_eq!(submit(&rules, r#"{"type": "t", "queue": "other"}"#).lane.route, Route::Pull);
    }

    #[test]
    fn settings_do_not_change_the_fingerprint() {
        let body = r#"{"type": "t", "queue": "mail", "idempotency_key": "k"}"#;
        let before = submit(&SubmissionRules::default(), body);
        let rules = rules(Settings { timeout_millis: Some(7), dispatch_jitter_millis: 9, ..Settings::default() });
        assert_eq!(submit(&rules, body).idempotency, before.idempotency);
    }

    #[test]
    fn tasks_are_spread_evenly_over_the_jitter() {
        const TASKS: i64 = 20_000;
        const BUCKETS: usize = 20;
        let rules = rules(Settings { dispatch_jitter_millis: 5_000, ..Settings::default() });
        let mut counts = [0_i64; BUCKETS];
        for _ in 0..TASKS {
            let task = submit(&rules, r#"{"type": "t", "queue": "mail"}"#);
            assert_eq!(task.execute_at, AT, "what was asked for is kept");
            let late = usize::try_from(task.due_at.millis_since(AT)).unwrap();
            counts[late / (5_000 / BUCKETS)] += 1;
        }
        // Chi-square with 19 degrees of freedom: 43.8 is passed once in a thousand, 60 once in four
        // million.
        let expected = TASKS / 20;
        let chi_square = counts.iter().map(|count| (count - expected).pow(2)).sum::<i64>() / expected;
        assert!(chi_square < 60, "{chi_square}: {counts:?}");
    }

    fn batch(rules: &SubmissionRules, bodies: impl IntoIterator<Item = &'static str>) -> Vec<Member> {
        let mut tasks: Vec<Member> = bodies.into_iter().map(|body| Ok(submit(rules, body))).collect();
        keep_order(&mut tasks);
        tasks
    }

    fn late(tasks: &[Member]) -> Vec<i64> {
        tasks.iter().map(|task| task.as_ref().unwrap()).map(|task| task.due_at.millis_since(task.execute_at)).collect()
    }

    #[test]
    fn a_batch_is_spread_in_order_in_small_groups() {
        let rules = rules(Settings { dispatch_jitter_millis: 5_000, ..Settings::default() });
        let plain = r#"{"type": "t", "queue": "mail"}"#;
        let late_ones = late(&batch(&rules, std::iter::repeat_n(plain, 10_000)));
        assert!(late_ones.is_sorted());
        for instant in late_ones.chunk_by(PartialEq::eq) {
            // Groups may share an instant by chance.
            assert!(instant.len() <= 8 * GROUP_MAX, "{} at once", instant.len());
        }
        for tenth in 0..10_i64 {
            let count = late_ones.iter().filter(|late| (tenth * 500..tenth * 500 + 500).contains(late)).count();
            assert!((800..1_200).contains(&count), "{count} in tenth {tenth}");
        }
        let few = late(&batch(&rules, std::iter::repeat_n(plain, GROUPS_MIN)));
        assert!(few.chunk_by(PartialEq::eq).count() > GROUPS_MIN / 2, "{few:?}");
    }

    #[test]
    fn only_tasks_with_the_same_spread_are_ordered() {
        let rules = rules(Settings { dispatch_jitter_millis: 1_000, ..Settings::default() });
        let bodies = [
            r#"{"type": "t", "queue": "mail"}"#,
            r#"{"type": "t", "queue": "other"}"#,
            r#"{"type": "t", "queue": "mail", "execute_at": "2026-05-23T18:00:00Z"}"#,
            r#"{"type": "t", "queue": "mail", "expires_at": "2026-05-22T18:00:00.100Z"}"#,
        ];
        let tasks = batch(&rules, bodies.into_iter().cycle().take(400));
        let late = late(&tasks);
        for (kind, most) in [(0, 1_000), (1, 0), (2, 1_000), (3, 50)] {
            let of_kind: Vec<i64> = late.iter().skip(kind).step_by(4).copied().collect();
            assert!(of_kind.iter().all(|late| (0..=most).contains(late)), "{kind}: {of_kind:?}");
            assert!(of_kind.is_sorted(), "{kind}: {of_kind:?}");
        }
    }

    #[test]
    fn a_task_becomes_due_before_it_expires() {
        let rules = rules(Settings { dispatch_jitter_millis: 3_600_000, ..Settings::default() });
        for _ in 0..100 {
            let text = r#"{"type": "t", "queue": "mail", "expires_at": "2026-05-22T18:00:01Z"}"#;
            assert!(submit(&rules, text).due_at <= AT.plus_millis(500));
        }
    }
}
