//! The rules of single fields.
//!
//! Used by every check of this crate and by the routes that take a few fields only. Invariant: a
//! check that fails adds a fault and returns some value, so the other checks can go on.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use punctual_client::{Dependency, Priority, Seconds};
use punctual_core::ids::TaskId;
use punctual_core::json::Json;
use punctual_core::task::limits;
use punctual_core::time::Timestamp;
use serde::Serialize;

use crate::error::pointer_token;
use crate::faults::Faults;
use crate::{BatchContext, idempotency_key};

/// The longest delay: 100 years.
const DELAY_MAX_MILLIS: u64 = 3_155_760_000_000;
/// A day: the longest timeout.
const DAY_MILLIS: u64 = 86_400_000;

/// When a task is to run, in the submitter's own terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At once.
    Now,
    /// At an instant.
    At(Timestamp),
    /// This many milliseconds from now.
    DelayMillis(u64),
}

impl When {
    /// The instant, for a submission at `now`.
    pub fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            When::Now => now,
            When::At(at) => at,
            When::DelayMillis(millis) => now.plus_unsigned_millis(millis),
        }
    }
}

/// Whether `text` can name a type or a queue: 1 to 255 of `[A-Za-z0-9._:/-]`.
pub fn is_name(text: &str) -> bool {
    (1..=limits::NAME).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
}

/// The rule for names, as a fault states it.
pub const NAME_RULE: &str = "must be 1 to 255 of A-Z a-z 0-9 . _ : / -";

/// The rule for priorities, as a fault states it.
pub const PRIORITY_RULE: &str = "must be a whole number from 0 to 9, or one of low, normal, high";

/// The fault of a metadata entry, if it has one.
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
    /// An ordering key.
    pub fn ordering_key(&mut self, given: Option<String>) -> Option<String> {
        self.key_of_tasks("/ordering_key", given)
    }

    /// A concurrency key.
    pub fn concurrency_key(&mut self, given: Option<String>) -> Option<String> {
        self.key_of_tasks("/concurrency_key", given)
    }

    /// Any text of 1 to 255 characters without control characters.
    fn key_of_tasks(&mut self, pointer: &str, given: Option<String>) -> Option<String> {
        let is_key =
            |key: &str| (1..=limits::NAME).contains(&key.chars().count()) && !key.chars().any(char::is_control);
        if given.as_deref().is_some_and(|key| !is_key(key)) {
            self.add(pointer, "must be 1 to 255 characters, none of them a control character");
        }
        given
    }

    /// The ids of the tasks that a task depends on, each once.
    pub fn depends_on(&mut self, given: &[Dependency], batch: &BatchContext<'_>) -> Vec<TaskId> {
        let mut ids = Vec::with_capacity(given.len());
        for (at, dependency) in given.iter().enumerate() {
            match batch.find(dependency) {
                Ok(id) => ids.push(id),
                // The first few faults are enough for a list of thousands.
                Err(fault) => self.add(format!("/depends_on/{at}"), fault),
            }
        }
        let mut seen = HashSet::with_capacity(ids.len());
        ids.retain(|id| seen.insert(*id));
        if self.is_empty()
            && let Err(fault) = batch.count(ids.len())
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
            self.add_too_large("/payload", limit);
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
        self.seconds("/delay_seconds", delay_seconds, DELAY_MAX_MILLIS).map_or(When::Now, When::DelayMillis)
    }

    /// A duration from zero to `max_millis`; none if it is absent or out of range.
    pub fn seconds(&mut self, pointer: &str, given: Option<Seconds>, max_millis: u64) -> Option<u64> {
        self.seconds_from(pointer, given, 0, max_millis)
    }

    /// A duration within bounds; none if it is absent or out of range.
    pub fn seconds_from(
        &mut self,
        pointer: &str,
        given: Option<Seconds>,
        min_millis: u64,
        max_millis: u64,
    ) -> Option<u64> {
        let given = given?;
        let millis = given.to_millis_within(min_millis, max_millis);
        if millis.is_none() {
            let (min, max) = (Seconds::from_millis(min_millis).0, Seconds::from_millis(max_millis).0);
            self.add(pointer, format!("must be a number from {min} to {max}"));
        }
        millis
    }

    /// A whole number within bounds; none if it is absent or out of range. `hint` may end the
    /// sentence.
    pub fn whole<T: TryFrom<i64>>(
        &mut self,
        pointer: &str,
        given: Option<i64>,
        range: RangeInclusive<i64>,
        hint: &str,
    ) -> Option<T> {
        let given = given?;
        let number = T::try_from(given).ok().filter(|_| range.contains(&given));
        if number.is_none() {
            self.add(pointer, format!("must be a whole number from {} to {}{hint}", range.start(), range.end()));
        }
        number
    }

    /// An expiry that is later than now and later than the due instant: otherwise the task could
    /// never run.
    pub fn expiry(&mut self, pointer: &str, expires_at: Option<Timestamp>, execute_at: Timestamp, now: Timestamp) {
        if expires_at.is_some_and(|expiry| expiry <= execute_at.max(now)) {
            self.add(pointer, "must leave time to run: expires_at has to be later than execute_at and than now");
        }
    }

    /// A level from 0 to 9.
    pub fn priority(&mut self, priority: &Priority) -> u8 {
        priority.level().unwrap_or_else(|| {
            match priority {
                Priority::Name(name) => self.add_word("/priority", PRIORITY_RULE, name, Priority::NAMES),
                Priority::Number(_) => self.add("/priority", PRIORITY_RULE),
            }
            Priority::DEFAULT
        })
    }

    /// A timeout of a millisecond to a day.
    pub fn timeout(&mut self, given: Option<Seconds>, default_millis: u64) -> u64 {
        self.seconds_from("/timeout_seconds", given, 1, DAY_MILLIS).unwrap_or(default_millis)
    }

    /// The metadata of a task.
    pub fn metadata(&mut self, metadata: &BTreeMap<String, String>) {
        if metadata.len() > limits::METADATA {
            self.add("/metadata", format!("must have at most {} entries", limits::METADATA));
        }
        for (key, value) in metadata {
            if let Some(message) = label_fault(key, value) {
                self.add(format!("/metadata/{}", pointer_token(key)), message);
            }
        }
    }

    /// The idempotency key, from the body or the header; if both have one, they must agree.
    pub fn key(&mut self, field: Option<String>, header: Option<String>) -> Option<String> {
        let pointer = "/idempotency_key";
        match (field, header) {
            (Some(field), _) if !idempotency_key::is_key(&field) => {
                self.add(pointer, idempotency_key::RULE);
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
