//! The caller of a request: the tenant it acts for, and what of it it reaches.
//!
//! Every handler about a tenant takes a [`Caller`], so none can forget whose things it shows. The
//! rule of what a caller reaches is [`punctual_auth::scope`]; this turns it into refusals. What a
//! caller names itself (a queue, a type) is refused with 403, and what an id leads to is not there.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap};
use punctual_auth::Principal;
use punctual_auth::scope::{self, Narrowed};
use punctual_core::schedules::Schedule;
use punctual_core::store::Filter;
use punctual_core::task::Task;
use punctual_core::tenants::KeyScope;
use punctual_submission::DEFAULT_QUEUE;

use super::Tenant;
use super::query::View;
use crate::auth::unauthenticated;
use crate::problem::{Code, Problem};

/// Who makes a request, and for which tenant.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant of the request.
    pub tenant: String,
    /// Who makes it.
    pub principal: Arc<Principal>,
}

impl Caller {
    /// The caller of the request with these extensions and headers. Without a principal nobody has
    /// checked the request, so it is refused.
    pub fn of(extensions: &Extensions, headers: &HeaderMap) -> Result<Self, Problem> {
        let principal = extensions.get::<Arc<Principal>>().cloned().ok_or_else(unauthenticated)?;
        let tenant = match Tenant::from_headers(headers)? {
            None => principal.tenant.clone(),
            Some(Tenant(named)) if named == principal.tenant || principal.may_be_any_tenant() => named,
            Some(_) => return Err(forbidden("only an admin may act for another tenant; leave out Punctual-Tenant")),
        };
        Ok(Self { tenant, principal })
    }

    fn scope(&self) -> &KeyScope {
        &self.principal.scope
    }

    /// Whether it reaches everything of its tenant.
    pub fn reaches_all(&self) -> bool {
        scope::is_whole(self.scope())
    }

    /// Whether it reaches a task.
    pub fn reaches(&self, task: &Task) -> bool {
        self.reaches_names(&task.lane.key.kind, &task.lane.key.queue)
    }

    /// Whether it reaches tasks of this type in this queue.
    pub fn reaches_names(&self, kind: &str, queue: &str) -> bool {
        scope::reaches(self.scope(), kind, queue)
    }

    /// Whether it reaches a queue as a whole.
    pub fn reaches_queue(&self, queue: &str) -> bool {
        scope::reaches_queue(self.scope(), queue)
    }

    /// Whether it reaches tasks of a type.
    pub fn reaches_type(&self, kind: &str) -> bool {
        scope::reaches_type(self.scope(), kind)
    }

    /// Whether it reaches the tasks of a schedule. Those of one that cannot be read it does not,
    /// unless it reaches all.
    pub fn reaches_schedule(&self, schedule: &Schedule) -> bool {
        let reaches_task = || {
            let names = schedule.definition.task_names();
            names.is_ok_and(|names| self.reaches_names(&names.kind, names.queue.as_deref().unwrap_or(DEFAULT_QUEUE)))
        };
        self.reaches_all() || reaches_task()
    }

    /// Whether it reaches every task that a filter matches.
    pub fn reaches_filter(&self, filter: &Filter) -> bool {
        scope::covers(self.scope(), filter.kind.as_ref(), filter.queue.as_ref())
    }

    /// Refuses a task that it would not reach.
    pub fn require(&self, kind: &str, queue: &str) -> Result<(), Problem> {
        if self.reaches_names(kind, queue) {
            return Ok(());
        }
        Err(forbidden(&format!("the credential does not reach tasks of the type {kind} in the queue {queue}")))
    }

    /// Refuses a queue that it does not reach.
    pub fn require_queue(&self, queue: &str) -> Result<(), Problem> {
        if self.reaches_queue(queue) {
            return Ok(());
        }
        Err(forbidden(&format!("the credential does not reach the queue {queue}")))
    }

    /// Refuses a caller that reaches only a part of its tenant, where there is no smaller answer.
    pub fn require_all(&self) -> Result<(), Problem> {
        if self.reaches_all() {
            return Ok(());
        }
        Err(forbidden("this concerns all queues and types, and the credential reaches only some of them"))
    }

    /// A filter that matches nothing that the caller does not reach; none if nothing is left. With
    /// several patterns that is more than a filter can say: then the reader leaves out what the
    /// caller does not reach, see [`Caller::reaches`].
    pub fn narrow(&self, filter: Filter) -> Option<Filter> {
        let narrow = |wanted, allowed: &[_]| match scope::narrowed(wanted, allowed) {
            Narrowed::All => Some(None),
            Narrowed::To(pattern) => Some(Some(pattern)),
            Narrowed::ToSeveral => Some(wanted.cloned()),
            Narrowed::ToNothing => None,
        };
        let kind = narrow(filter.kind.as_ref(), &self.scope().types)?;
        let queue = narrow(filter.queue.as_ref(), &self.scope().queues)?;
        Some(Filter { kind, queue, ..filter })
    }

    /// The same for a change of everything that a filter matches: refused unless the filter can
    /// say all of it.
    pub fn narrow_exactly(&self, filter: Filter) -> Result<Filter, Problem> {
        let narrowed = self.narrow(filter).filter(|filter| self.reaches_filter(filter));
        narrowed.ok_or_else(|| {
            forbidden("the filter matches tasks that the credential does not reach; name one of its types and queues")
        })
    }

    /// How much of each item it is shown, of what it asks for.
    pub fn view(&self, wanted: View) -> View {
        if self.scope().payloads { wanted } else { View::Summary }
    }

    /// Everything, or what it may see of it.
    pub fn full_view(&self) -> View {
        self.view(View::Full)
    }
}

/// The refusal of a caller that is known, but may not.
pub fn forbidden(detail: &str) -> Problem {
    Problem::new(Code::Forbidden, detail)
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.extensions, &parts.headers)
    }
}
