//! Query strings. Unknown parameters are refused, and so are repeated ones unless they may repeat.
//! A fault says what was sent, and the parameter that was probably meant.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use punctual_client::problem::FieldError;
use punctual_client::{Seconds, TaskFilter};
use punctual_core::time::Timestamp;
use punctual_submission::reading::quoted;
use punctual_submission::{Faults, did_you_mean, nearest, pointer_token};
use serde_json::Value;
use url::form_urlencoded;
use utoipa::{IntoParams, ToSchema};

use crate::problem::Problem;

/// What the pointer to a parameter of the query begins with.
const QUERY: &str = "?";
/// The default number of items on a page.
const LIMIT_DEFAULT: usize = 50;
/// The maximum number of items on a page.
const LIMIT_MAX: usize = 1_000;

/// The parameters of a listing, for the OpenAPI document; [`Query::page`] reads them.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "documents what the query may say")]
pub struct PageParams {
    /// Items on a page, 50 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u16>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// How much of each item is shown; `full` if absent.
    #[param(inline)]
    view: Option<View>,
}

/// How much of each item a list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum View {
    /// Everything.
    #[default]
    Full,
    /// No payloads, results, headers and checkpoints.
    Summary,
}

/// The parameters of a request, and the faults found so far.
///
/// A handler takes the parameters it knows; [`Query::finish`] refuses the rest.
#[derive(Debug, Default)]
pub struct Query {
    pairs: Vec<Pair>,
    /// The names that were asked for, or what they begin with.
    known: Vec<&'static str>,
    faults: Vec<FieldError>,
    /// What a pointer begins with: a question mark, or the place of a filter in a body.
    root: &'static str,
}

/// A parameter.
#[derive(Debug)]
struct Pair {
    name: String,
    value: String,
    /// Whether the handler knows it.
    taken: bool,
}

impl Pair {
    fn new(name: String, value: String) -> Self {
        Self { name, value, taken: false }
    }
}

impl Query {
    /// The parameters of a raw query string.
    pub fn parse(raw: &str) -> Self {
        let pairs = form_urlencoded::parse(raw.as_bytes()).into_owned();
        let pairs: Vec<Pair> = pairs.map(|(name, value)| Pair::new(name, value)).collect();
        // The decoder writes U+FFFD for bytes that are no text.
        let is_broken = |pair: &&Pair| [&pair.name, &pair.value].iter().any(|text| text.contains(['\u{fffd}', '\0']));
        let broken = pairs.iter().filter(is_broken);
        let faults = broken.map(|pair| fault(QUERY, &pair.name, "must be UTF-8 without NUL")).collect();
        Self { pairs, known: Vec::new(), faults, root: QUERY }
    }

    /// The conditions of a filter in a body, as a query would say them. Its states are left out.
    pub fn of_filter(filter: &TaskFilter) -> Self {
        let filter = TaskFilter { status: Vec::new(), ..filter.clone() };
        let fields = serde_json::to_value(filter).expect("invariant: a filter can be written as JSON");
        let mut pairs = Vec::new();
        for (name, value) in fields.as_object().into_iter().flatten() {
            match value {
                Value::String(text) => pairs.push(Pair::new(name.clone(), text.clone())),
                Value::Object(labels) => {
                    pairs.extend(labels.iter().filter_map(|(key, value)| {
                        Some(Pair::new(format!("{name}.{key}"), value.as_str()?.to_owned()))
                    }));
                }
                other => pairs.push(Pair::new(name.clone(), other.to_string())),
            }
        }
        Self { pairs, known: Vec::new(), faults: Vec::new(), root: "/filter/" }
    }

    /// Takes a parameter that may be given once.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        let mut values = self.take_all(name);
        if values.len() > 1 {
            self.refuse(name, "may be given only once");
        }
        values.pop()
    }

    /// Takes every value of a parameter.
    pub fn take_all(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        let named = self.pairs.iter_mut().filter(|pair| !pair.taken && pair.name == name);
        named.map(Pair::take).collect()
    }

    /// Takes every parameter whose name begins with `prefix`, by the rest of its name.
    pub fn take_prefixed(&mut self, prefix: &'static str) -> Vec<(String, String)> {
        self.known.push(prefix);
        let named = self.pairs.iter_mut().filter(|pair| !pair.taken && pair.name.starts_with(prefix));
        named.map(|pair| (pair.name[prefix.len()..].to_owned(), pair.take())).collect()
    }

    /// Takes a parameter and parses it; a failure is a fault.
    pub fn read<T>(&mut self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.take(name)?;
        match parse(&value) {
            Ok(parsed) => Some(parsed),
            Err(message) => {
                self.refuse(name, message);
                None
            }
        }
    }

    /// Takes an instant, if it is given.
    pub fn instant(&mut self, name: &'static str) -> Option<Timestamp> {
        // An unescaped plus sign becomes a blank: the commonest mistake with a time in a query.
        self.read(name, |text| {
            Timestamp::parse(text).map_err(|fault| {
                if text.contains(' ') { format!("{fault} (write + as %2B in a query)") } else { fault.to_string() }
            })
        })
    }

    /// Takes a whole number in `range`, if it is given.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<usize>) -> Option<usize> {
        self.read(name, |text| {
            let number = whole(text).parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// Takes a duration of whole or fractional seconds up to `most`, if it is given.
    pub fn seconds(&mut self, name: &'static str, most_millis: u64) -> Option<Duration> {
        self.read(name, |text| {
            let seconds = text.parse().ok().map(Seconds);
            let millis = seconds.and_then(|seconds| seconds.to_millis_within(0, most_millis));
            millis
                .map(Duration::from_millis)
                .ok_or_else(|| format!("must be a number from 0 to {}", most_millis / 1_000))
        })
    }

    /// Takes `true` or `false`, if it is given.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, |text| text.parse().map_err(|_| "must be true or false".to_owned()))
    }

    /// Takes one of some words, if it is given.
    pub fn word<T: Copy>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        self.read(name, |text| {
            let meant = words.iter().find(|(word, _)| *word == text).map(|(_, meant)| *meant);
            meant.ok_or_else(|| must_be_one_of(text, words.iter().map(|(word, _)| *word)))
        })
    }

    /// Takes `limit`, if it is given.
    pub fn limit(&mut self) -> Option<usize> {
        self.number("limit", 1..=LIMIT_MAX)
    }

    /// Takes `view`.
    pub fn view(&mut self) -> View {
        self.word("view", &[("full", View::Full), ("summary", View::Summary)]).unwrap_or_default()
    }

    /// Takes `limit` and `cursor`, the last parameters that a listing takes.
    pub fn page(mut self) -> Result<(usize, Option<String>), Problem> {
        let (limit, cursor) = (self.limit().unwrap_or(LIMIT_DEFAULT), self.take("cursor"));
        // Most items have nothing that a summary leaves out.
        self.view();
        self.finish()?;
        Ok((limit, cursor))
    }

    /// Adds a fault of a parameter.
    pub fn refuse(&mut self, name: &str, message: impl Into<String>) {
        self.faults.push(fault(self.root, name, message));
    }

    /// Adds a fault of one of the values of a parameter that may repeat.
    pub fn refuse_value(&mut self, name: &str, value: &str, message: impl Into<String>) {
        self.faults.push(fault(self.root, name, message).with_value(quoted(name, value)));
    }

    /// Fails with all faults, including the parameters that were not taken.
    pub fn finish(self) -> Result<(), Problem> {
        let mut faults = Faults::default();
        self.finish_into(&mut faults);
        Ok(faults.finish()?)
    }

    /// Adds all faults to those of the body.
    pub fn finish_into(mut self, faults: &mut Faults) {
        let root = self.root;
        let unknown = self.pairs.iter().filter(|pair| !pair.taken).map(|pair| {
            let near = parameter_meant(&pair.name, &self.known);
            fault(root, &pair.name, format!("is not a known parameter{near}"))
        });
        self.faults.extend(unknown);
        for fault in self.faults {
            let name = fault.pointer.strip_prefix(QUERY).filter(|_| fault.value.is_none());
            let sent = self.pairs.iter().find(|pair| name == Some(pair.name.as_str()));
            let value = sent.and_then(|pair| quoted(&pair.name, &pair.value));
            faults.extend([if value.is_some() { fault.with_value(value) } else { fault }]);
        }
    }
}

impl Pair {
    fn take(&mut self) -> String {
        self.taken = true;
        self.value.clone()
    }
}

/// The fault of a text that should be one of some words.
pub fn must_be_one_of<'a>(text: &str, words: impl Iterator<Item = &'a str> + Clone) -> String {
    let listed = words.clone().collect::<Vec<_>>().join(", ");
    format!("must be one of {listed}{}", did_you_mean(text, words))
}

/// The text of a whole number without the point that some clients write, as in a body.
pub fn whole(text: &str) -> &str {
    text.strip_suffix(".0").unwrap_or(text)
}

/// A fault of the parameter `name`. A label of a filter in a body is a member of its own.
fn fault(root: &str, name: &str, message: impl Into<String>) -> FieldError {
    let pointer = match name.split_once('.').filter(|_| root != QUERY) {
        Some((member, key)) => format!("{root}{member}/{}", pointer_token(key)),
        None => format!("{root}{name}"),
    };
    FieldError::new(pointer, message)
}

/// The end of a fault's sentence about an unknown parameter: what was probably meant.
fn parameter_meant(name: &str, known: &[&'static str]) -> String {
    match nearest(name, known.iter().copied()).map(|near| (near, near.trim_end_matches(['.', '[']))) {
        Some((near, stem)) if stem.len() < near.len() => format!("; write `{stem}.KEY=VALUE` or `{stem}[KEY]=VALUE`"),
        Some((near, _)) => format!("; did you mean `{near}`?"),
        None => String::new(),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(raw: &str, look: impl FnOnce(&mut Query)) -> Vec<String> {
        let mut query = Query::parse(raw);
        look(&mut query);
        let problem = query.finish().err();
        problem.map_or_else(Vec::new, |problem| problem.errors().iter().map(|f| f.pointer.clone()).collect())
    }

    #[test]
    fn a_parameter_that_is_not_taken_is_refused() {
        assert_eq!(faults("limit=5&stauts=PENDING&x", |q| assert_eq!(q.limit(), Some(5))), ["?stauts", "?x"]);
    }

    #[test]
    fn a_parameter_comes_once() {
        assert_eq!(faults("a=1&a=2", |q| assert_eq!(q.take("a").as_deref(), Some("2"))), ["?a"]);
        assert!(faults("a=1&a=2", |q| assert_eq!(q.take_all("a"), ["1", "2"])).is_empty());
    }

    #[test]
    fn limits_are_bounded() {
        for (raw, limit) in [("", 50), ("limit=1", 1), ("limit=1000", 1_000)] {
            assert_eq!(Query::parse(raw).page().unwrap(), (limit, None));
        }
        for raw in ["limit=0", "limit=1001", "limit=1000000000", "limit=-1", "limit=", "limit=ten"] {
            assert_eq!(faults(raw, |q| assert_eq!(q.limit(), None)), ["?limit"], "{raw}");
        }
    }

    #[test]
    fn prefixed_parameters_are_taken_by_the_rest_of_their_name() {
        let mut query = Query::parse("metadata.team=a%20b&metadata.=x&other=1");
        assert_eq!(
            query.take_prefixed("metadata."),
            [("team".to_owned(), "a b".to_owned()), (String::new(), "x".to_owned())]
        );
    }

    #[test]
    fn bytes_that_are_not_text_are_refused() {
        assert_eq!(faults("a=%ff", |q| drop(q.take("a"))), ["?a"]);
        assert_eq!(faults("a=%00", |q| drop(q.take("a"))), ["?a"]);
    }
}
