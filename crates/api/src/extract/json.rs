//! Bodies of JSON, with the faults of their shape.
//!
//! Text that is not JSON, or that two parsers would read differently (a repeated key, a lone
//! surrogate, a number beyond every double), is 400 `invalid_json`. JSON of the wrong shape is 422
//! `invalid_request`, together with the faults of its values: so a handler takes a [`JsonBody`]
//! apart in a check, and gets what the check makes of it only if there is no fault.

use axum::body::HttpBody;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use punctual_client::RequestBody;
use punctual_submission::reading::{self, NotJson};
use punctual_submission::{Faults, Sent, SubmissionError};

use super::body;
use super::query::Query;
use crate::parameterless::refused_by_body;
use crate::problem::{Code, Problem};
use crate::state::Api;

/// A body of JSON, up to the limit of a single task.
pub struct JsonBody<T> {
    sent: Sent<T>,
    /// The text, to say in a fault what was sent.
    bytes: Bytes,
}

impl<T: RequestBody> FromRequest<Api> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        // That a body is empty says more than that its type is missing.
        if !request.body().is_end_stream() {
            body::require_json(request.headers())?;
        }
        let parameters = refused_by_body(&request);
        let bytes = body::read(request, api.config.body_bytes).await?;
        Ok(Self::read(bytes)?.beside(parameters))
    }
}

impl<T: RequestBody> JsonBody<T> {
    /// Reads a body.
    pub fn read(bytes: Bytes) -> Result<Self, Problem> {
        Ok(Self { sent: reading::read(text(&bytes)?)?, bytes })
    }
}

impl<T> JsonBody<T> {
    /// A body of which nothing was sent.
    fn absent(value: T, bytes: Bytes) -> Self {
        Self { sent: Sent::good(value), bytes }
    }

    /// The same body, with the faults of the query.
    fn beside(self, query: Query) -> Self {
        Self { sent: self.sent.with(|faults| query.finish_into(faults)), ..self }
    }

    /// What `check` makes of the body; a problem if the body or the check has a fault. `check`
    /// returns none only with a fault.
    pub fn check<R>(self, check: impl FnOnce(T, &mut Faults) -> Option<R>) -> Result<R, Problem> {
        self.sent.check(check).map_err(|error| quoting(&self.bytes, error))
    }

    /// The same for a body that is looked at more than once.
    pub fn check_ref<R>(&self, check: impl FnOnce(&T, &mut Faults) -> Option<R>) -> Result<R, Problem> {
        self.sent.check_ref(check).map_err(|error| quoting(&self.bytes, error))
    }

    /// The body as it was sent.
    pub fn text(&self) -> Bytes {
        self.bytes.clone()
    }

    /// A body whose values have no rules.
    pub fn finish(self) -> Result<T, Problem> {
        self.check(|value, _| Some(value))
    }
}

/// The problem with these faults, which say what was sent there.
pub fn quoting(bytes: &[u8], error: SubmissionError) -> Problem {
    match std::str::from_utf8(bytes) {
        Ok(text) => error.quoting(text).into(),
        Err(_) => error.into(),
    }
}

/// A body of JSON that may be absent or `null`.
pub struct MaybeJsonBody<T>(pub JsonBody<T>);

impl<T: RequestBody + Default> FromRequest<Api> for MaybeJsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let media_type = body::require_json(request.headers());
        let parameters = refused_by_body(&request);
        let bytes = body::read(request, api.config.body_bytes).await?;
        if bytes.is_empty() {
            return Ok(Self(JsonBody::absent(T::default(), bytes).beside(parameters)));
        }
        media_type?;
        let body = match bytes.trim_ascii() {
            b"null" => JsonBody::absent(T::default(), bytes),
            _ => JsonBody::read(bytes)?,
        };
        Ok(Self(body.beside(parameters)))
    }
}

/// The text of a body.
pub fn text(body: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(body).map_err(|fault| NotJson::not_utf8(fault.valid_up_to()).into())
}

impl From<NotJson> for Problem {
    fn from(fault: NotJson) -> Self {
        Self::new(Code::InvalidJson, fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use punctual_client::NewTask;

    use super::*;

    #[test]
    fn text_that_is_not_json_is_invalid_json() {
        let deep = format!(r#"{{"type":"a","payload":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            "",
            "{",
            "nope",
            "{} {}",
            "\u{feff}{}",
            r#"{"type":"a","type":"b"}"#,
            r#"{"type":"a","payload":{"k":1,"k":2}}"#,
            r#"{"type":"a","metadata":{"k":"1","k":"2"}}"#,
            r#"{"type":"a","payload":1e400}"#,
            r#"{"type":"a","delay_seconds":1e400}"#,
            r#"{"type":"a","delay_seconds":NaN}"#,
            r#"{"type":"\ud800"}"#,
            r#"{"type":"a","payload":"\ud800"}"#,
            "{\"type\":\"a\u{0}\"}",
            &deep,
        ] {
            let problem = JsonBody::<NewTask>::read(Bytes::copy_from_slice(text.as_bytes())).err().expect("a fault");
            assert_eq!(problem.code(), Code::InvalidJson, "{}", &text[..text.len().min(60)]);
        }
        assert_eq!(
            JsonBody::<NewTask>::read(Bytes::from_static(b"{\"type\":\"\xff\"}")).err().unwrap().code(),
            Code::InvalidJson
        );
    }

    #[test]
    fn faults_of_shape_and_value_come_in_one_problem() {
        let bytes = Bytes::from_static(br#"{"type": "no blanks", "queue": 5, "payload": "secret"}"#);
        let body = JsonBody::<NewTask>::read(bytes).unwrap();
        let check = |new: &NewTask, faults: &mut Faults| {
            faults.name("/type", &new.kind);
            faults.add("/payload", "is odd");
            Some(())
        };
        let problem = body.check_ref(check).unwrap_err();
        let errors: Vec<_> =
            problem.errors().iter().map(|fault| (fault.pointer.as_str(), fault.value.as_ref())).collect();
        let [("/queue", Some(queue)), ("/type", Some(kind)), ("/payload", None)] = errors[..] else {
            panic!("{errors:?}")
        };
        assert_eq!((queue.get(), kind.get()), ("5", r#""no blanks""#));
    }
}
