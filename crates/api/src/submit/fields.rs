//! The rules of single fields, and the collection of what breaks them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use punctual_client::problem::Fault;
use punctual_client::{Dependency, Priority, RetryPolicyFields, Seconds};
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::retry::RetryPolicy;
use punctual_core::task::limits;
use punctual_core::time::Timestamp;
use serde::Serialize;

use crate::extract::json::escaped;
use crate::problem::{Code, Problem};
use crate::submit::{Among, key};

/// 100 years, in milliseconds.
const MAX_DELAY_MILLIS: u64 = 3_155_760_000_000;
/// A day, in milliseconds: the longest timeout and the longest backoff.
const DAY_MILLIS: u64 = 86_400_000;

/// More faults of one list are not told.
const MOST_FAULTS: usize = 20;

/// What is wrong with a request. A check that fails still gives some value, so that the others can go on.
#[derive(Debug, Default)]
pub struct Faults {
    found: Vec<Fault>,
    too_large: bool,
}

/// When a task is to run, as its submitter said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At once.
    Now,
    /// At an instant.
    At(Timestamp),
    /// So many milliseconds from now.
    DelayMillis(u64),
}

impl When {
    /// The instant, for a submission at `now`.
    pub fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            When::Now => now,
            When::At(at) => at,
            When::DelayMillis(millis) => now.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)),
        }
    }
}

/// Whether `text` can name a type or a queue: 1 to 255 of `[A-Za-z0-9._:/-]`.
pub fn is_name(text: &str) -> bool {
    (1..=limits::NAME).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
}

/// What a name must be, in words.
pub const NAME_RULE: &str = "must be 1 to 255 of A-Z a-z 0-9 . _ : / -";

/// What is wrong with a label, if anything.
pub fn label_fault(key: &str, value: &str) -> Option<String> {
    let (key_limit, value_limit) = (limits::METADATA_KEY, limits::METADATA_VALUE);
    if key.is_empty() || key.chars().count() > key_limit {
        Some(format!("must have a key of 1 to {key_limit} characters"))
    } else if value.chars().count() > value_limit {
        Some(format!("must have at most {value_limit} characters"))
    } else {
        [key, value]
            .iter()
            .any(|text| text.chars().any(char::is_control))
            .then(|| "must have no control characters".to_owned())
    }
}

impl Faults {
    /// Notes a fault.
    pub fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.found.push(Fault::new(pointer, message));
    }

    /// Refuses if anything was found.
    pub fn finish(self) -> Result<(), Problem> {
        if self.too_large {
            let problem = Problem::new(Code::TooLarge, "the payload is too large");
            return Err(self
                .found
                .into_iter()
                .fold(problem, |problem, fault| problem.at(fault.pointer, fault.message)));
        }
        if self.found.is_empty() { Ok(()) } else { Err(Problem::invalid(self.found)) }
    }

    /// An ordering key: any text of 1 to 255 characters without control characters.
    pub fn ordering_key(&mut self, given: Option<String>) -> Option<String> {
        let is_key =
            |key: &str| (1..=limits::NAME).contains(&key.chars().count()) && !key.chars().any(char::is_control);
        if given.as_deref().is_some_and(|key| !is_key(key)) {
            self.add("/ordering_key", "must be 1 to 255 characters, none of them a control character");
        }
        given
    }

    /// The ids of what a task depends on, each once.
    pub fn depends_on(&mut self, given: &[Dependency], among: &Among<'_>) -> Vec<TaskId> {
        let mut ids = Vec::with_capacity(given.len());
        for (at, dependency) in given.iter().enumerate() {
            match among.find(dependency) {
                Ok(id) => ids.push(id),
                // A list of thousands of bad ones is told by the first few.
                Err(fault) if self.found.len() < MOST_FAULTS => self.add(format!("/depends_on/{at}"), fault),
                Err(_) => {}
            }
        }
        let mut seen = HashSet::with_capacity(ids.len());
        ids.retain(|id| seen.insert(*id));
        if self.found.is_empty()
            && let Err(fault) = among.count(ids.len())
        {
            self.add("/depends_on", fault);
        }
        ids
    }

    /// A type or a queue.
    pub fn name(&mut self, pointer: &str, text: &str) {
        if !is_name(text) {
            self.add(pointer, NAME_RULE);
        }
    }

    /// A payload within `limit` bytes.
    pub fn payload(&mut self, payload: &Json, limit: usize) {
        if payload.get().len() > limit {
            self.too_large = true;
            self.add("/payload", format!("must have at most {limit} bytes"));
        }
    }

    /// An instant; none if it is not one.
    pub fn instant(&mut self, pointer: &str, text: &str) -> Option<Timestamp> {
        Timestamp::parse(text).map_err(|fault| self.add(pointer, fault.to_string())).ok()
    }

    /// At most one of an instant and a delay.
    pub fn when(&mut self, execute_at: Option<&str>, delay_seconds: Option<Seconds>) -> When {
        if execute_at.is_some() && delay_seconds.is_some() {
            self.add("/delay_seconds", "must not be given together with execute_at");
        }
        if let Some(text) = execute_at {
            return self.instant("/execute_at", text).map_or(When::Now, When::At);
        }
        let Some(delay) = delay_seconds else { return When::Now };
        delay.to_millis_within(0, MAX_DELAY_MILLIS).map_or_else(
            || {
                self.add("/delay_seconds", "must be from 0 to 3155760000 (100 years)");
                When::Now
            },
            When::DelayMillis,
        )
    }

    /// An expiry after the task is due and after now, or the task could never run.
    pub fn expiry(&mut self, pointer: &str, expires_at: Option<Timestamp>, execute_at: Timestamp, now: Timestamp) {
        if expires_at.is_some_and(|expiry| expiry <= execute_at.max(now)) {
            self.add(pointer, "must leave time to run: expires_at has to be later than execute_at and than now");
        }
    }

    /// A level from 0 to 9.
    pub fn priority(&mut self, priority: &Priority) -> u8 {
        priority.level().unwrap_or_else(|| {
            self.add("/priority", "must be a whole number from 0 to 9, or low, normal or high");
            Priority::DEFAULT
        })
    }

    /// The policy that `given` makes of `base`.
    pub fn retry_policy(&mut self, given: &RetryPolicyFields, base: RetryPolicy) -> RetryPolicy {
        let max_retries = given.max_retries.map_or(base.max_retries, |asked| {
            u32::try_from(asked).ok().filter(|retries| *retries <= limits::RETRIES).unwrap_or_else(|| {
                self.add("/retry_policy/max_retries", format!("must be from 0 to {}", limits::RETRIES));
                base.max_retries
            })
        });
        let backoff_millis = self.backoff("/retry_policy/backoff_seconds", given.backoff_seconds);
        let max_backoff_millis = self.backoff("/retry_policy/max_backoff_seconds", given.max_backoff_seconds);
        let first = backoff_millis.unwrap_or(base.backoff_millis);
        let most = match (max_backoff_millis, backoff_millis) {
            (Some(most), Some(first)) if most < first => {
                self.add("/retry_policy/max_backoff_seconds", "must not be less than backoff_seconds");
                most
            }
            (Some(most), _) => most,
            // Whoever asks for a longer first delay than the usual cap wants that delay.
            (None, _) => base.max_backoff_millis.max(first),
        };
        RetryPolicy {
            max_retries,
            backoff: given.backoff.map_or(base.backoff, Into::into),
            backoff_millis: first,
            max_backoff_millis: most,
            jitter: given.jitter.map_or(base.jitter, Into::into),
        }
    }

    fn backoff(&mut self, pointer: &str, given: Option<Seconds>) -> Option<u64> {
        let millis = given?.to_millis_within(0, DAY_MILLIS);
        if millis.is_none() {
            self.add(pointer, "must be from 0 to 86400");
        }
        millis
    }

    /// A timeout of a millisecond to a day.
    pub fn timeout(&mut self, given: Option<Seconds>, default_millis: u64) -> u64 {
        let Some(given) = given else { return default_millis };
        given.to_millis_within(1, DAY_MILLIS).unwrap_or_else(|| {
            self.add("/timeout_seconds", "must be from 0.001 to 86400");
            default_millis
        })
    }

    /// Labels.
    pub fn metadata(&mut self, metadata: &BTreeMap<String, String>) {
        if metadata.len() > limits::METADATA {
            self.add("/metadata", format!("must have at most {} entries", limits::METADATA));
        }
        for (key, value) in metadata {
            if let Some(message) = label_fault(key, value) {
                self.add(format!("/metadata/{}", escaped(key)), message);
            }
        }
    }

    /// The idempotency key of the body and that of the header, which are the same thing.
    pub fn key(&mut self, field: Option<String>, header: Option<String>) -> Option<String> {
        let pointer = "/idempotency_key";
        match (field, header) {
            (Some(field), _) if !key::is_key(&field) => {
                self.add(pointer, Cow::Borrowed(key::RULE));
                None
            }
            (Some(field), Some(header)) if field != header => {
                self.add(pointer, "must be the same as the header Idempotency-Key");
                None
            }
            (field, header) => field.or(header),
        }
    }
}
