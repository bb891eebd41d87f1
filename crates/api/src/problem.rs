//! Errors as RFC 9457 problem details: `application/problem+json` with a stable `code`.
//!
//! Every handler and extractor of this crate fails with a [`Problem`]; [`crate::middleware`] turns
//! the framework's own refusals (no such path, wrong method) into one. A `detail` is written for
//! the caller and reveals no internals: the text of a store's error goes to the log only.

use std::fmt;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use punctual_client::problem::FieldError;
use punctual_core::store::StoreError;
use punctual_scheduler::polls::PollError;
use punctual_submission::{ErrorCode, LISTED_MAX, SubmissionError};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $code:literal, $title:literal;)*) => {
        /// The kind of a problem: a stable word, its HTTP status and its title.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }

            /// The title, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON, or JSON that readers disagree about (duplicate keys, lone surrogates).
    InvalidJson = BAD_REQUEST, "invalid_json", "The body is not acceptable JSON";
    /// The body could not be read to its end.
    InvalidBody = BAD_REQUEST, "invalid_body", "The body could not be read";
    /// The tenant's name is not one.
    InvalidTenant = BAD_REQUEST, "invalid_tenant", "The tenant's name is not acceptable";
    /// The header `Idempotency-Key` is not acceptable.
    InvalidIdempotencyKey = BAD_REQUEST, "invalid_idempotency_key", "The idempotency key is not acceptable";
    /// The cursor was not made by this listing.
    InvalidCursor = BAD_REQUEST, "invalid_cursor", "The cursor is not one of this listing";
    /// The bytes are no HTTP request, or one that two readers would read differently.
    MalformedRequest = BAD_REQUEST, "malformed_request", "The bytes are not a request";
    /// The path and query are too long.
    UriTooLong = URI_TOO_LONG, "uri_too_long", "The path is too long";
    /// The head of the request is too large.
    HeadersTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", "The head of the request is too large";
    /// A header is not of the form it must have.
    InvalidHeader = BAD_REQUEST, "invalid_header", "A header is malformed";
    /// The request has no valid credential.
    Unauthenticated = UNAUTHORIZED, "unauthenticated", "The caller is not known";
    /// The caller is known, but may not do this.
    Forbidden = FORBIDDEN, "forbidden", "The caller may not do this";
    /// While authentication is off: a web page of another site made the request.
    CrossSite = FORBIDDEN, "cross_site", "The request comes from another site";
    /// While authentication is off: the request is for another host.
    Misdirected = MISDIRECTED_REQUEST, "misdirected", "The request is for another server";
    /// Nothing is here for this tenant.
    NotFound = NOT_FOUND, "not_found", "There is nothing here";
    /// The path exists, but not with this method.
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method_not_allowed", "The method is not allowed here";
    /// The caller accepts no format that we can answer in.
    NotAcceptable = NOT_ACCEPTABLE, "not_acceptable", "No acceptable form of the answer";
    /// The caller did not send its request in time.
    RequestTimeout = REQUEST_TIMEOUT, "request_timeout", "The request did not arrive in time";
    /// The body or the payload is over its limit.
    TooLarge = PAYLOAD_TOO_LARGE, "too_large", "The content is too large";
    /// The content type is not supported.
    UnsupportedMediaType = UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "The content type is not supported";
    /// The request is well formed but not valid; `errors` lists the faults.
    InvalidRequest = UNPROCESSABLE_ENTITY, "invalid_request", "The request is not valid";
    /// The same idempotency key with another body.
    IdempotencyKeyReused = UNPROCESSABLE_ENTITY, "idempotency_key_reused", "The idempotency key was used for something else";
    /// A task depends on one that its tenant does not have.
    UnknownDependency = UNPROCESSABLE_ENTITY, "unknown_dependency", "A task that this one depends on does not exist";
    /// A batch that is stored as a whole or not at all has a task that is refused.
    BatchRefused = UNPROCESSABLE_ENTITY, "batch_refused", "Not all tasks of the batch can be stored";
    /// Tasks of a batch depend on each other in a circle.
    DependencyCycle = UNPROCESSABLE_ENTITY, "dependency_cycle", "Tasks depend on each other in a circle";
    /// The task has begun or finished and can no longer be edited.
    NotEditable = CONFLICT, "not_editable", "The task cannot be edited any more";
    /// The task has finished.
    AlreadyFinal = CONFLICT, "already_final", "The task has finished";
    /// The task does not wait.
    NotWaiting = CONFLICT, "not_waiting", "The task does not wait";
    /// The task is no dead letter.
    NotDeadLettered = CONFLICT, "not_dead_lettered", "The task is no dead letter";
    /// Another schedule has this name.
    NameTaken = CONFLICT, "name_taken", "Another schedule has this name";
    /// There is a tenant of this name.
    TenantExists = CONFLICT, "tenant_exists", "There is a tenant of this name";
    /// The tenant has live tasks or schedules, or the key of the request.
    TenantNotEmpty = CONFLICT, "tenant_not_empty", "The tenant is in use";
    /// The queue has live tasks.
    QueueNotEmpty = CONFLICT, "queue_not_empty", "The queue has live tasks";
    /// The tenant has as many webhook secrets as may live.
    TooManySecrets = CONFLICT, "too_many_secrets", "The tenant has two webhook secrets";
    /// Other writers changed it each time we tried.
    Conflict = CONFLICT, "conflict", "It kept changing";
    /// Another worker holds the task now, or it has finished.
    StaleToken = CONFLICT, "stale_token", "The token does not hold the task any more";
    /// The run did not end within its task's timeout.
    TimedOut = CONFLICT, "timed_out", "The run did not end within its timeout";
    /// The task was cancelled: its worker should stop.
    Cancelled = GONE, "cancelled", "The task was cancelled";
    /// The task is not at the version the caller expects.
    VersionMismatch = PRECONDITION_FAILED, "version_mismatch", "It is at another version";
    /// The queue has reached its `max_depth`.
    QueueFull = TOO_MANY_REQUESTS, "queue_full", "The queue is full";
    /// The tenant has as much of something as it may have.
    QuotaExceeded = TOO_MANY_REQUESTS, "quota_exceeded", "The tenant has as much as it may have";
    /// Too many requests came.
    RateLimited = TOO_MANY_REQUESTS, "rate_limited", "Too many requests";
    /// A bug or broken data in the server.
    Internal = INTERNAL_SERVER_ERROR, "internal_error", "Something went wrong inside the server";
    /// The store does not answer.
    StoreUnavailable = SERVICE_UNAVAILABLE, "store_unavailable", "The store does not answer";
    /// The store has no room.
    StoreFull = SERVICE_UNAVAILABLE, "store_full", "The store is full";
    /// Too many requests or writes wait already.
    Overloaded = SERVICE_UNAVAILABLE, "overloaded", "The server is overloaded";
    /// The node is shutting down.
    ShuttingDown = SERVICE_UNAVAILABLE, "shutting_down", "The node is shutting down";
}

impl Code {
    /// The URI that names this kind of problem. It is a name, not an address.
    pub fn type_uri(self) -> String {
        format!("urn:punctual:problem:{}", self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The maximum number of faults that a `detail` names.
const NAMED_MAX: usize = 3;

/// One occurrence of a problem, on its way to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    /// How many more faults there are than listed.
    more: usize,
    retry_after_seconds: Option<u32>,
}

impl Problem {
    /// A problem of this kind. `detail` is a sentence about this occurrence, for people.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), more: 0, retry_after_seconds: None }
    }

    /// A request that is well formed but not valid, with all its faults.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        Self::faulty(Code::InvalidRequest, errors, 0)
    }

    /// A request with these faults, and `more` that are not listed.
    fn faulty(code: Code, errors: Vec<FieldError>, more: usize) -> Self {
        let said = |fault: &FieldError| format!("{}: {}", fault.place(), fault.message);
        let detail = match errors.as_slice() {
            [only] if more == 0 => said(only),
            listed => {
                let named: Vec<String> = listed.iter().take(NAMED_MAX).map(said).collect();
                let all = listed.len() + more;
                let where_others_are = match (all - named.len(), more) {
                    (0, _) => String::new(),
                    (_, 0) => "; errors lists all".to_owned(),
                    _ => format!("; errors lists the first {}", listed.len()),
                };
                format!("{all} things are wrong with the request. {}{where_others_are}", named.join("; "))
            }
        };
        Self { errors, more, ..Self::new(code, detail) }
    }

    /// The refusal of a whole request, with the faults of its items beside its own. Each item comes
    /// with its place.
    #[must_use]
    pub fn beside<'p>(self, items: impl IntoIterator<Item = (String, &'p Self)>) -> Self {
        let Self { code, mut errors, mut more, .. } = self;
        for (place, item) in items {
            more += item.more;
            for fault in item.faults_at(&place) {
                if errors.len() < LISTED_MAX {
                    errors.push(fault);
                } else {
                    more += 1;
                }
            }
        }
        Self::faulty(code, errors, more)
    }

    /// The faults of the item at `place`; the problem itself as one if it names none.
    pub fn faults_at(&self, place: &str) -> Vec<FieldError> {
        if self.errors.is_empty() {
            return vec![FieldError::new(place, format!("{}: {}", self.code, self.detail))];
        }
        self.errors.clone()
    }

    /// A request with one fault.
    pub fn invalid_at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(pointer, message)])
    }

    /// A task that does not exist, or not for this tenant.
    pub fn no_such_task() -> Self {
        Self::new(Code::NotFound, "there is no task with this id")
    }

    /// The same problem with these faults.
    #[must_use]
    pub fn listing(self, errors: Vec<FieldError>) -> Self {
        Self { errors, ..self }
    }

    /// Asks the caller to retry after this many seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after_seconds: Some(seconds), ..self }
    }

    /// The same problem for an item of a larger request: its pointers begin with `prefix`.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        for fault in &mut self.errors {
            fault.pointer.insert_str(0, prefix);
        }
        self
    }

    /// Its kind.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Its HTTP status.
    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// The sentence about this occurrence.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// After how many seconds the caller should retry, if that may help.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.retry_after_seconds
    }

    /// The faults it names.
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// The body on the wire.
    pub fn to_wire(&self) -> punctual_client::problem::Problem {
        punctual_client::problem::Problem {
            kind: self.code.type_uri(),
            title: self.code.title().to_owned(),
            status: self.status().as_u16(),
            detail: self.detail.clone(),
            code: self.code.as_str().to_owned(),
            errors: self.errors.clone(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.to_wire()).expect("invariant: a problem has only texts and numbers");
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<SubmissionError> for Problem {
    fn from(error: SubmissionError) -> Self {
        let SubmissionError { code, detail, faults: errors, more } = error;
        let code = match code {
            ErrorCode::Invalid => return Self::faulty(Code::InvalidRequest, errors, more),
            ErrorCode::TooLarge => return Self::faulty(Code::TooLarge, errors, more),
            ErrorCode::DependencyCycle => Code::DependencyCycle,
            ErrorCode::UnknownDependency => Code::UnknownDependency,
        };
        Self { errors, ..Self::new(code, detail) }
    }
}

/// Every failed store call of a handler ends here: it is logged, and the caller gets a problem
/// without its text.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let problem = match &error {
            StoreError::Unavailable(_) => {
                Self::new(Code::StoreUnavailable, "the store does not answer; the same request may succeed later")
            }
            StoreError::Full(_) => Self::new(Code::StoreFull, "the store has no room; nothing was changed"),
            StoreError::Overloaded => Self::new(Code::Overloaded, "too many writes are waiting; nothing was changed"),
            StoreError::Corrupt(_) => {
                tracing::error!(error = %error, "the store holds unreadable data; answering 500");
                return Self::new(
                    Code::Internal,
                    "stored data could not be read; the log has the details. A task that was set aside because of that is in \
                     the table `quarantine` of the store (`punctual.quarantine` on PostgreSQL)",
                );
            }
        };
        tracing::warn!(error = %error, code = %problem.code, "a call to the store failed; answering 503");
        problem.retry_after(1)
    }
}

impl From<PollError> for Problem {
    fn from(error: PollError) -> Self {
        match error {
            PollError::Closed => Self::new(Code::ShuttingDown, "this node is shutting down; poll again").retry_after(1),
            PollError::Crowded => Self::new(Code::Overloaded, "too many workers wait here already").retry_after(1),
            PollError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_snake_case_and_unique() {
        let words: HashSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
        assert!(Code::ALL.iter().all(|code| code.status().is_client_error() || code.status().is_server_error()));
    }

    #[test]
    fn a_problem_is_written_as_rfc_9457_says() {
        let problem = Problem::invalid(vec![FieldError::new("/priority", "must be from 0 to 9")]);
        let response = problem.clone().into_response();
        assert_eq!(response.status(), 422);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(
            serde_json::to_value(problem.to_wire()).unwrap(),
            serde_json::json!({
                "type": "urn:punctual:problem:invalid_request",
                "title": "The request is not valid",
                "status": 422,
                "detail": "priority: must be from 0 to 9",
                "code": "invalid_request",
                "errors": [{"pointer": "/priority", "message": "must be from 0 to 9"}],
            })
        );
    }

    #[test]
    fn a_detail_names_the_first_few_faults() {
        let faults = |count: usize| (0..count).map(|at| FieldError::new(format!("/f{at}"), "is odd")).collect();
        let detail = |count, more| Problem::faulty(Code::InvalidRequest, faults(count), more).detail;
        assert_eq!(detail(1, 0), "f0: is odd");
        assert_eq!(detail(2, 0), "2 things are wrong with the request. f0: is odd; f1: is odd");
        let first = "f0: is odd; f1: is odd; f2: is odd";
        assert_eq!(detail(4, 0), format!("4 things are wrong with the request. {first}; errors lists all"));
        let many = format!("109 things are wrong with the request. {first}; errors lists the first 100");
        assert_eq!(detail(100, 9), many);
    }

    #[test]
    fn the_text_of_a_store_error_is_not_shown() {
        for (error, status) in [
            (StoreError::Unavailable("disk /dev/sda1".into()), 503),
            (StoreError::Full("disk /dev/sda1".into()), 503),
            (StoreError::Overloaded, 503),
            (StoreError::Corrupt("disk /dev/sda1".into()), 500),
        ] {
            let retryable = error.is_retryable();
            let response = Problem::from(error).into_response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().contains_key(RETRY_AFTER), retryable);
        }
        let problem = Problem::from(StoreError::Corrupt("disk /dev/sda1".into()));
        assert!(!problem.detail().contains("/dev"));
        assert!(problem.detail().contains("`punctual.quarantine`"), "{}", problem.detail());
    }

    #[test]
    fn the_pointers_of_an_item_begin_with_its_own() {
        let problem =
            Problem::invalid(vec![FieldError::new("/priority", "is odd"), FieldError::new("", "is not an object")]);
        let pointers: Vec<_> = problem.under("/tasks/3").errors.into_iter().map(|fault| fault.pointer).collect();
        assert_eq!(pointers, ["/tasks/3/priority", "/tasks/3"]);
    }
}
