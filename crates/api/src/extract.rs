//! Extractors: the parts of a request that handlers take.
//!
//! Every refusal is a [`Problem`], never the framework's plain text. [`json`] reads JSON strictly,
//! [`body`] reads bytes up to a limit, and [`query`] refuses unknown parameters. The faults of a
//! query and of a body are checked together, so that one answer has them all.

pub mod body;
mod caller;
mod condition;
pub mod json;
pub mod query;

use axum::extract::{FromRequestParts, Path};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use punctual_core::ids::TaskId;
use punctual_core::task::Task;

pub use caller::{Caller, forbidden};
pub use condition::If;
pub use json::{JsonBody, MaybeJsonBody};

use crate::problem::{Code, Problem};
use crate::state::Api;

/// A request about one task.
pub struct TaskRequest {
    /// The interface.
    pub api: Api,
    /// Who makes it.
    pub caller: Caller,
    /// The id in the path.
    pub id: TaskId,
}

impl TaskRequest {
    /// Reads the task. One that the caller does not reach is not there.
    pub async fn find(&self) -> Result<Task, Problem> {
        let found = self.api.store.get(&self.caller.tenant, vec![self.id]).await?.pop().flatten();
        found.filter(|task| self.caller.reaches(task)).ok_or_else(Problem::no_such_task)
    }
}

impl FromRequestParts<Api> for TaskRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let caller = Caller::of(&parts.extensions, &parts.headers)?;
        // A text that is no id names no task.
        let id = path_text(parts).await.and_then(|text| text.parse().ok()).ok_or_else(Problem::no_such_task)?;
        Ok(Self { api: api.clone(), caller, id })
    }
}

/// The variable part of the path; none if it is not valid UTF-8.
pub async fn path_text(parts: &mut Parts) -> Option<String> {
    Path::from_request_parts(parts, &()).await.ok().map(|Path(text)| text)
}

/// A tenant that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant(pub String);

/// The header that names the tenant.
pub const TENANT_HEADER: &str = "punctual-tenant";

impl Tenant {
    /// The tenant that the headers name, if they name one.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let mut values = headers.get_all(TENANT_HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        match value.to_str() {
            Ok(name) if Self::is_name(name) && values.next().is_none() => Ok(Some(Self(name.to_owned()))),
            _ => Err(Problem::new(Code::InvalidTenant, format!("Punctual-Tenant must be one name of {}", Self::RULE))),
        }
    }

    /// What a name of a tenant is made of.
    pub const RULE: &'static str = "1 to 64 of A-Z a-z 0-9 . _ -";

    /// Whether a tenant can have this name.
    pub fn is_name(name: &str) -> bool {
        (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn tenant(values: &[&[u8]]) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TENANT_HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        Tenant::from_headers(&headers).map(|named| named.map(|tenant| tenant.0)).map_err(|problem| problem.code())
    }

    #[test]
    fn the_tenant_is_a_plain_name() {
        assert_eq!(tenant(&[]), Ok(None));
        assert_eq!(tenant(&[b"acme-1.eu_west"]), Ok(Some("acme-1.eu_west".to_owned())));
        let long = [b'a'; 65];
        assert!(tenant(&[&long[..64]]).is_ok());
        for bad in [&b""[..], b"a b", b"a/b", b"\xc3\xa9", b"%00", &long] {
            assert_eq!(tenant(&[bad]), Err(Code::InvalidTenant));
        }
        assert_eq!(tenant(&[b"a", b"b"]), Err(Code::InvalidTenant));
    }
}
