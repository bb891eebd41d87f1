//! The conditions on tasks that lists and bulk operations share.

use std::collections::BTreeMap;

use punctual_client as wire;
use punctual_client::form::{LabelsForm, ScheduleIdForm};
use punctual_core::name_pattern::NamePattern;
use punctual_core::store::Filter;
use punctual_submission::did_you_mean;
use punctual_submission::fields::{NAME_RULE, PRIORITY_RULE, is_name, label_fault};
use utoipa::IntoParams;

use crate::extract::query::{Query, whole};

/// The conditions on tasks, for the OpenAPI document; [`read_filter`] reads them. All have to
/// hold.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents what the query may say")]
pub struct FilterParams {
    /// Of this type; a trailing `*` stands for any end.
    #[param(rename = "type", pattern = "^[A-Za-z0-9._:/-]+\\*?$", min_length = 1, max_length = 255)]
    kind: Option<String>,
    /// In this queue; a trailing `*` stands for any end.
    #[param(pattern = "^[A-Za-z0-9._:/-]+\\*?$", min_length = 1, max_length = 255)]
    queue: Option<String>,
    /// Made by this schedule.
    #[param(value_type = Option<ScheduleIdForm>)]
    schedule_id: Option<String>,
    /// At least this urgent.
    #[param(value_type = Option<wire::Priority>)]
    priority_min: Option<String>,
    /// Created at or after.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Created before.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Wanted at or after.
    #[param(format = DateTime)]
    execute_after: Option<String>,
    /// Wanted before.
    #[param(format = DateTime)]
    execute_before: Option<String>,
    /// Finished at or after.
    #[param(format = DateTime)]
    completed_after: Option<String>,
    /// Finished before.
    #[param(format = DateTime)]
    completed_before: Option<String>,
    /// With this ordering key.
    ordering_key: Option<String>,
    /// With this concurrency key.
    concurrency_key: Option<String>,
    /// Submitted under this idempotency key.
    idempotency_key: Option<String>,
    /// With this worker, or run last by it.
    worker_id: Option<String>,
    /// Whose last error has this code.
    error_code: Option<String>,
    /// With these labels: `metadata[KEY]=VALUE` for each, or `metadata.KEY=VALUE`, which means the
    /// same.
    #[param(style = DeepObject, explode, value_type = Option<LabelsForm>)]
    metadata: Option<BTreeMap<String, String>>,
}

/// Takes every condition but the state out of the query.
pub fn read_filter(query: &mut Query) -> Filter {
    let mut filter = Filter {
        kind: query.read("type", pattern),
        queue: query.read("queue", pattern),
        schedule_id: query.read("schedule_id", |text| text.parse().map_err(|fault| format!("{fault}"))),
        priority_min: query.read("priority_min", priority),
        created_after: query.instant("created_after"),
        created_before: query.instant("created_before"),
        execute_after: query.instant("execute_after"),
        execute_before: query.instant("execute_before"),
        completed_after: query.instant("completed_after"),
        completed_before: query.instant("completed_before"),
        ordering_key: query.take("ordering_key"),
        concurrency_key: query.take("concurrency_key"),
        idempotency_key: query.take("idempotency_key"),
        worker_id: query.take("worker_id"),
        error_code: query.take("error_code"),
        ..Filter::default()
    };
    for (parameter, key, value) in labels(query) {
        if let Some(message) = label_fault(&key, &value) {
            query.refuse(&parameter, message);
        } else if filter.metadata.insert(key, value).is_some() {
            query.refuse(&parameter, "may be given only once");
        }
    }
    filter
}

/// The labels of both spellings, each with its parameter: `metadata.KEY` and `metadata[KEY]`.
fn labels(query: &mut Query) -> Vec<(String, String, String)> {
    let dotted = query.take_prefixed("metadata.").into_iter();
    let mut labels: Vec<_> = dotted.map(|(key, value)| (format!("metadata.{key}"), key, value)).collect();
    for (rest, value) in query.take_prefixed("metadata[") {
        let parameter = format!("metadata[{rest}");
        match rest.strip_suffix(']') {
            Some(key) => labels.push((parameter, key.to_owned(), value)),
            None => query.refuse(&parameter, "must be metadata[KEY]"),
        }
    }
    labels
}

fn pattern(text: &str) -> Result<NamePattern, String> {
    let pattern = NamePattern::from(text);
    if is_name(pattern.text()) { Ok(pattern) } else { Err(format!("{NAME_RULE}; a * may follow")) }
}

fn priority(text: &str) -> Result<u8, String> {
    let priority = whole(text).parse().map_or_else(|_| wire::Priority::Name(text.to_owned()), wire::Priority::Number);
    priority.level().ok_or_else(|| format!("{PRIORITY_RULE}{}", did_you_mean(text, wire::Priority::NAMES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Result<Filter, Vec<String>> {
        let mut query = Query::parse(raw);
        let filter = read_filter(&mut query);
        match query.finish() {
            Ok(()) => Ok(filter),
            Err(problem) => Err(problem.errors().iter().map(|fault| fault.pointer.clone()).collect()),
        }
    }

    #[test]
    fn every_condition_is_read() {
        let filter = read(
            "type=mail.*&queue=q&priority_min=high&created_after=2026-05-22T18:00:00Z&execute_before=2026-05-22T20:00:00%2B02:00\
             &metadata.team=a%20%25_%5C&metadata[x]=&worker_id=w&error_code=boom&ordering_key=o&concurrency_key=c&idempotency_key=i\
             &completed_after=2026-05-22T18:00:00Z&completed_before=2026-05-22T19:00:00Z",
        )
        .unwrap();
        assert_eq!(
            (filter.kind, filter.queue, filter.priority_min),
            (Some(NamePattern::Prefix("mail.".to_owned())), Some(NamePattern::Exact("q".to_owned())), Some(8))
        );
        assert_eq!(filter.created_after, filter.execute_before);
        assert_eq!(filter.metadata["team"], "a %_\\");
        assert_eq!(filter.metadata["x"], "");
        assert_eq!((filter.worker_id.as_deref(), filter.error_code.as_deref()), (Some("w"), Some("boom")));
        assert_eq!((filter.ordering_key.as_deref(), filter.idempotency_key.as_deref()), (Some("o"), Some("i")));
        assert_eq!(filter.concurrency_key.as_deref(), Some("c"));
        assert!(filter.completed_after < filter.completed_before);
    }

    #[test]
    fn all_faults_of_a_query_are_reported() {
        let faults = read("type=a%20b&queue=a*b&priority_min=10&created_after=yesterday&execute_after=2026-05-22T18:00:00+02:00&metadata.=x&metadata[y=1&metadata.z=1&metadata[z]=1&schedule_id=7&staus=X")
            .unwrap_err();
        let mut expected = [
            "?type",
            "?queue",
            "?schedule_id",
            "?priority_min",
            "?created_after",
            "?execute_after",
            "?metadata.",
            "?metadata[y",
            "?metadata[z]",
            "?staus",
        ];
        let mut faults = faults;
        faults.sort();
        expected.sort_unstable();
        assert_eq!(faults, expected);
    }
}
