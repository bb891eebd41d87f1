//! Extractors: the parts of a request that handlers take.
//!
//! Every refusal is a [`Problem`], never the framework's plain text. [`json`] reads JSON strictly,
//! [`body`] reads bytes up to a limit, and [`query`] refuses unknown parameters. The faults of a
//! query and of a body are checked together, so that one answer has them all.

pub mod body;
mod condition;
pub mod json;
pub mod query;

use axum::extract::{FromRequestParts, Path};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use punctual_core::ids::TaskId;
use punctual_core::task::Task;

pub use condition::If;
pub use json::{JsonBody, MaybeJsonBody};

use crate::problem::{Code, Problem};
use crate::state::Api;

/// A request about one task.
pub struct TaskRequest {
    /// The interface.
    pub api: Api,
    /// The tenant.
    pub tenant: String,
    /// The id in the path.
    pub id: TaskId,
}

impl TaskRequest {
    /// Reads the task.
    pub async fn find(&self) -> Result<Task, Problem> {
        self.api.store.get(&self.tenant, vec![self.id]).await?.pop().flatten().ok_or_else(Problem::no_such_task)
    }
}

impl FromRequestParts<Api> for TaskRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Tenant(tenant) = Tenant::from_headers(&parts.headers)?;
        // A text that is no id names no task.
        let id = path_text(parts).await.and_then(|text| text.parse().ok()).ok_or_else(Problem::no_such_task)?;
        Ok(Self { api: api.clone(), tenant, id })
    }
}

/// The variable part of the path; none if it is not valid UTF-8.
pub async fn path_text(parts: &mut Parts) -> Option<String> {
    Path::from_request_parts(parts, &()).await.ok().map(|Path(text)| text)
}

/// The tenant of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant(pub String);

/// The header that names the tenant.
pub const TENANT_HEADER: &str = "punctual-tenant";

impl Tenant {
    /// The tenant of a caller that names none.
    pub const DEFAULT: &'static str = "default";

    /// The tenant that the headers name.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut values = headers.get_all(TENANT_HEADER).iter();
        let Some(value) = values.next() else { return Ok(Self(Self::DEFAULT.to_owned())) };
        match value.to_str() {
            Ok(name) if Self::is_name(name) && values.next().is_none() => Ok(Self(name.to_owned())),
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

impl<S: Send + Sync> FromRequestParts<S> for Tenant {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::from_headers(&parts.headers)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn tenant(values: &[&[u8]]) -> Result<String, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TENANT_HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        Tenant::from_headers(&headers).map(|tenant| tenant.0).map_err(|problem| problem.code())
    }

    #[test]
    fn the_tenant_is_a_plain_name() {
        assert_eq!(tenant(&[]).as_deref(), Ok("default"));
        assert_eq!(tenant(&[b"acme-1.eu_west"]).as_deref(), Ok("acme-1.eu_west"));
        let long = [b'a'; 65];
        assert!(tenant(&[&long[..64]]).is_ok());
        for bad in [&b""[..], b"a b", b"a/b", b"\xc3\xa9", b"%00", &long] {
            assert_eq!(tenant(&[bad]), Err(Code::InvalidTenant));
        }
        assert_eq!(tenant(&[b"a", b"b"]), Err(Code::InvalidTenant));
    }
}
