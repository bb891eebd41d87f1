//! What each call needs: one table of all routes.
//!
//! [`crate::auth`] asks it with the method and the route that was matched. Deny by default: a call
//! that is not in the table is refused whatever the credential. A test compares the table with the
//! OpenAPI document, so a new route fails it until somebody has decided what it needs.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method;
use punctual_auth::Permission;

use Access::{Needs, Public};
use Permission::{Administer, Change, Identify, Measure, Operate, Read, Submit, Work};

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it concerns no tenant.
    Public,
    /// A credential with this permission.
    Needs(Permission),
    /// Nobody has said, so no credential suffices.
    Unclassified,
}

/// Every call there is.
const CALLS: &[(&str, &str, Access)] = &[
    ("GET", "/", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/healthz", Public),
    ("GET", "/readyz", Public),
    ("GET", "/metrics", Needs(Measure)),
    ("GET", "/v1/whoami", Needs(Identify)),
    ("POST", "/v1/tasks", Needs(Submit)),
    ("GET", "/v1/tasks", Needs(Read)),
    ("POST", "/v1/tasks/batch", Needs(Submit)),
    ("POST", "/v1/tasks/cancel", Needs(Change)),
    ("GET", "/v1/tasks/{id}", Needs(Read)),
    ("PATCH", "/v1/tasks/{id}", Needs(Change)),
    ("DELETE", "/v1/tasks/{id}", Needs(Change)),
    ("POST", "/v1/tasks/{id}/run", Needs(Change)),
    ("GET", "/v1/tasks/{id}/runs", Needs(Read)),
    ("GET", "/v1/tasks/{id}/events", Needs(Read)),
    ("GET", "/v1/tasks/{id}/explain", Needs(Read)),
    ("POST", "/v1/tasks/{id}/redrive", Needs(Operate)),
    ("POST", "/v1/tasks/{id}/purge", Needs(Operate)),
    ("POST", "/v1/tasks/{id}/complete", Needs(Work)),
    ("POST", "/v1/tasks/{id}/fail", Needs(Work)),
    ("POST", "/v1/tasks/{id}/heartbeat", Needs(Work)),
    ("POST", "/v1/tasks/{id}/release", Needs(Work)),
    ("POST", "/v1/leases", Needs(Work)),
    ("POST", "/v1/leases/settle", Needs(Work)),
    ("GET", "/v1/dead-letters", Needs(Read)),
    ("POST", "/v1/dead-letters/redrive", Needs(Operate)),
    ("POST", "/v1/dead-letters/purge", Needs(Operate)),
    ("GET", "/v1/operations", Needs(Read)),
    ("GET", "/v1/operations/{id}", Needs(Read)),
    ("DELETE", "/v1/operations/{id}", Needs(Change)),
    ("POST", "/v1/schedules", Needs(Operate)),
    ("GET", "/v1/schedules", Needs(Read)),
    ("POST", "/v1/schedules/preview", Needs(Read)),
    ("GET", "/v1/schedules/{id}", Needs(Read)),
    ("PATCH", "/v1/schedules/{id}", Needs(Operate)),
    ("DELETE", "/v1/schedules/{id}", Needs(Operate)),
    ("POST", "/v1/schedules/{id}/pause", Needs(Operate)),
    ("POST", "/v1/schedules/{id}/resume", Needs(Operate)),
    ("POST", "/v1/schedules/{id}/trigger", Needs(Operate)),
    ("POST", "/v1/schedules/{id}/backfill", Needs(Operate)),
    ("DELETE", "/v1/schedules/{id}/backfill", Needs(Operate)),
    ("GET", "/v1/schedules/{id}/preview", Needs(Read)),
    ("GET", "/v1/schedules/{id}/occurrences", Needs(Read)),
    ("PUT", "/v1/schedules/by-name/{name}", Needs(Operate)),
    ("GET", "/v1/schedules/by-name/{name}", Needs(Read)),
    ("PATCH", "/v1/schedules/by-name/{name}", Needs(Operate)),
    ("DELETE", "/v1/schedules/by-name/{name}", Needs(Operate)),
    ("POST", "/v1/schedules/by-name/{name}/pause", Needs(Operate)),
    ("POST", "/v1/schedules/by-name/{name}/resume", Needs(Operate)),
    ("POST", "/v1/schedules/by-name/{name}/trigger", Needs(Operate)),
    ("POST", "/v1/schedules/by-name/{name}/backfill", Needs(Operate)),
    ("DELETE", "/v1/schedules/by-name/{name}/backfill", Needs(Operate)),
    ("GET", "/v1/schedules/by-name/{name}/preview", Needs(Read)),
    ("GET", "/v1/schedules/by-name/{name}/occurrences", Needs(Read)),
    ("GET", "/v1/queues", Needs(Read)),
    ("GET", "/v1/queues/{name}", Needs(Read)),
    ("PUT", "/v1/queues/{name}", Needs(Operate)),
    ("DELETE", "/v1/queues/{name}", Needs(Operate)),
    ("POST", "/v1/queues/{name}/pause", Needs(Operate)),
    ("POST", "/v1/queues/{name}/resume", Needs(Operate)),
    ("GET", "/v1/workers", Needs(Read)),
    ("GET", "/v1/forecast", Needs(Read)),
    ("GET", "/v1/upcoming", Needs(Read)),
    ("GET", "/v1/admin/breakers", Needs(Operate)),
    ("POST", "/v1/admin/breakers/reset", Needs(Operate)),
    ("GET", "/v1/admin/nodes", Needs(Administer)),
    ("GET", "/v1/admin/partitions", Needs(Administer)),
    ("POST", "/v1/admin/tenants", Needs(Administer)),
    ("GET", "/v1/admin/tenants", Needs(Administer)),
    ("GET", "/v1/admin/tenants/{tenant}", Needs(Administer)),
    ("PATCH", "/v1/admin/tenants/{tenant}", Needs(Administer)),
    ("DELETE", "/v1/admin/tenants/{tenant}", Needs(Administer)),
    ("POST", "/v1/admin/tenants/{tenant}/keys", Needs(Administer)),
    ("GET", "/v1/admin/tenants/{tenant}/keys", Needs(Administer)),
    ("DELETE", "/v1/admin/tenants/{tenant}/keys/{key_id}", Needs(Administer)),
    ("POST", "/v1/admin/tenants/{tenant}/keys/{key_id}/rotate", Needs(Administer)),
    ("GET", "/v1/admin/tenants/{tenant}/webhook-secrets", Needs(Administer)),
    ("POST", "/v1/admin/tenants/{tenant}/webhook-secrets", Needs(Administer)),
    ("DELETE", "/v1/admin/tenants/{tenant}/webhook-secrets/{id}", Needs(Administer)),
];

/// The table by route.
static BY_ROUTE: LazyLock<HashMap<&str, Vec<(&str, Access)>>> = LazyLock::new(|| {
    let mut routes: HashMap<&str, Vec<(&str, Access)>> = HashMap::new();
    for (method, route, access) in CALLS {
        routes.entry(route).or_default().push((method, *access));
    }
    routes
});

/// What a call needs. Where there is no route there is nothing to protect, but only a caller that
/// is known learns that.
pub fn of(method: &Method, route: Option<&str>) -> Access {
    let Some(route) = route else { return Needs(Identify) };
    // A route that answers GET answers HEAD, too.
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let calls = BY_ROUTE.get(route).into_iter().flatten();
    calls.filter(|(known, _)| *known == method).map(|(_, access)| *access).next().unwrap_or(Access::Unclassified)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routes;

    /// What is served beside the document.
    const UNDOCUMENTED: [(&str, &str); 2] = [("GET", "/"), ("GET", "/openapi.json")];

    #[test]
    fn every_call_of_the_document_is_classified_once() {
        let (_, document) = routes::router().split_for_parts();
        let mut documented: BTreeSet<(String, String)> = BTreeSet::new();
        for (path, item) in &document.paths.paths {
            let methods = [
                ("GET", item.get.is_some()),
                ("PUT", item.put.is_some()),
                ("POST", item.post.is_some()),
                ("DELETE", item.delete.is_some()),
                ("PATCH", item.patch.is_some()),
                ("HEAD", item.head.is_some()),
                ("OPTIONS", item.options.is_some()),
                ("TRACE", item.trace.is_some()),
            ];
            let there = methods.into_iter().filter(|(_, is_there)| *is_there);
            documented.extend(there.map(|(method, _)| (method.to_owned(), path.clone())));
        }
        documented.extend(UNDOCUMENTED.map(|(method, path)| (method.to_owned(), path.to_owned())));
        let classified: BTreeSet<(String, String)> =
            CALLS.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
        assert_eq!(classified.len(), CALLS.len(), "a call is classified twice");
        let missing: Vec<_> = documented.difference(&classified).collect();
        assert!(missing.is_empty(), "say in access.rs what these calls need: {missing:?}");
        let gone: Vec<_> = classified.difference(&documented).collect();
        assert!(gone.is_empty(), "these calls do not exist any more: {gone:?}");
    }

    #[test]
    fn what_is_not_classified_is_denied() {
        let post = Method::POST;
        for (method, route) in [(&post, "/v1/whoami"), (&post, "/v1/new"), (&Method::TRACE, "/v1/tasks")] {
            assert_eq!(of(method, Some(route)), Access::Unclassified, "{method} {route}");
        }
        assert_eq!(of(&Method::HEAD, Some("/v1/tasks")), Needs(Read));
        assert_eq!(of(&Method::GET, None), Needs(Identify));
    }
}
