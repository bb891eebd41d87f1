//! The rule of scopes: which tasks, queues and types a credential reaches.
//!
//! The API asks it wherever something is named, read or listed. A task is reached if both its type
//! and its queue are. What cannot be narrowed to a scope is refused, never shown in part by chance.

use punctual_core::name_pattern::NamePattern;
use punctual_core::tenants::{AccessRole, KeyScope};

/// The maximum number of patterns of types, and of queues, of one key.
pub const PATTERNS_MAX: usize = 32;

/// What is left of a wanted pattern within a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Narrowed {
    /// All names.
    All,
    /// The names that this pattern matches.
    To(NamePattern),
    /// Several patterns: the reader has to check each item.
    ToSeveral,
    /// No name.
    ToNothing,
}

/// The names that a pattern of a filter matches within these of a scope; no patterns in the scope
/// mean all names, and so does no pattern in the filter.
pub fn narrowed(wanted: Option<&NamePattern>, allowed: &[NamePattern]) -> Narrowed {
    let mut both: Vec<NamePattern> = match (wanted, allowed) {
        (None, []) => return Narrowed::All,
        (Some(wanted), []) => return Narrowed::To(wanted.clone()),
        (None, allowed) => allowed.to_vec(),
        (Some(wanted), allowed) => allowed.iter().filter_map(|one| one.both(wanted)).collect(),
    };
    // A pattern that another one covers adds nothing.
    let mut widest: Vec<NamePattern> = Vec::new();
    while let Some(one) = both.pop() {
        if !both.iter().chain(&widest).any(|other| other.covers(&one)) {
            widest.push(one);
        }
    }
    match (widest.pop(), widest.is_empty()) {
        (None, _) => Narrowed::ToNothing,
        (Some(only), true) => Narrowed::To(only),
        (Some(_), false) => Narrowed::ToSeveral,
    }
}

/// Whether the scope reaches everything of its tenant.
pub fn is_whole(scope: &KeyScope) -> bool {
    scope.types.is_empty() && scope.queues.is_empty()
}

/// Whether the scope reaches tasks of this type.
pub fn reaches_type(scope: &KeyScope, kind: &str) -> bool {
    is_matched(&scope.types, kind)
}

/// Whether the scope reaches this queue.
pub fn reaches_queue(scope: &KeyScope, queue: &str) -> bool {
    is_matched(&scope.queues, queue)
}

/// Whether the scope reaches tasks of this type in this queue.
pub fn reaches(scope: &KeyScope, kind: &str, queue: &str) -> bool {
    reaches_type(scope, kind) && reaches_queue(scope, queue)
}

/// Whether the scope reaches every task that a filter with these patterns matches.
pub fn covers(scope: &KeyScope, kind: Option<&NamePattern>, queue: Option<&NamePattern>) -> bool {
    let within = |allowed: &[NamePattern], wanted: Option<&NamePattern>| {
        allowed.is_empty() || wanted.is_some_and(|wanted| allowed.iter().any(|one| one.covers(wanted)))
    };
    within(&scope.types, kind) && within(&scope.queues, queue)
}

fn is_matched(patterns: &[NamePattern], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(name))
}

/// What is wrong with a scope for a role: the field, and a sentence.
pub fn faults(role: AccessRole, scope: &KeyScope) -> Vec<(&'static str, &'static str)> {
    let mut faults = Vec::new();
    if role == AccessRole::Admin && !is_whole(scope) {
        let field = if scope.types.is_empty() { "/queues" } else { "/types" };
        faults.push((field, "must be empty for an admin, who may do everything; choose another role"));
    }
    if role == AccessRole::Admin && !scope.payloads {
        faults.push(("/payloads", "must be true for an admin, who may do everything; choose another role"));
    }
    if role == AccessRole::Worker && !scope.payloads {
        faults.push(("/payloads", "must be true for a worker, who could not work without them"));
    }
    if role == AccessRole::Worker && !scope.types.is_empty() && !scope.queues.is_empty() {
        faults.push(("/types", "must not be given together with queues for a worker, who leases by either"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<NamePattern> {
        texts.iter().map(|text| NamePattern::from(*text)).collect()
    }

    fn scope(types: &[&str], queues: &[&str]) -> KeyScope {
        KeyScope { types: patterns(types), queues: patterns(queues), payloads: true }
    }

    #[test]
    fn a_filter_is_narrowed_to_what_both_match() {
        let to = |text: &str| Narrowed::To(text.into());
        for (wanted, allowed, left) in [
            (None, &[][..], Narrowed::All),
            (Some("a"), &[], to("a")),
            (None, &["a"], to("a")),
            (None, &["a", "b"], Narrowed::ToSeveral),
            (None, &["a*", "ab", "abc*"], to("a*")),
            (None, &["a", "a"], to("a")),
            (Some("a*"), &["ab*", "b"], to("ab*")),
            (Some("ab"), &["a*", "ab*"], to("ab")),
            (Some("*"), &["a", "b"], Narrowed::ToSeveral),
            (Some("c"), &["a", "b"], Narrowed::ToNothing),
        ] {
            let wanted = wanted.map(NamePattern::from);
            assert_eq!(narrowed(wanted.as_ref(), &patterns(allowed)), left, "{wanted:?} in {allowed:?}");
        }
    }

    #[test]
    fn a_task_is_reached_by_type_and_queue() {
        let scope = scope(&["mail.*"], &["eu", "us"]);
        assert!(reaches(&scope, "mail.send", "eu"));
        assert!(!reaches(&scope, "mail.send", "asia") && !reaches(&scope, "mai", "eu"));
        assert!(reaches(&KeyScope::default(), "x", "y"));
    }

    #[test]
    fn a_filter_is_covered_if_no_task_escapes() {
        let scope = scope(&["mail.*"], &[]);
        let covered = |kind: Option<&str>, queue: Option<&str>| {
            covers(&scope, kind.map(NamePattern::from).as_ref(), queue.map(NamePattern::from).as_ref())
        };
        assert!(covered(Some("mail.x"), None) && covered(Some("mail.*"), Some("q")));
        assert!(!covered(Some("mail*"), None) && !covered(None, Some("q")) && !covered(None, None));
    }

    #[test]
    fn a_scope_must_fit_its_role() {
        let blind = KeyScope { payloads: false, ..scope(&[], &[]) };
        let fields = |role, scope: &KeyScope| faults(role, scope).into_iter().map(|fault| fault.0).collect::<Vec<_>>();
        assert_eq!(fields(AccessRole::Worker, &blind), ["/payloads"]);
        assert_eq!(fields(AccessRole::Admin, &blind), ["/payloads"]);
        assert_eq!(fields(AccessRole::Worker, &scope(&["a"], &["b"])), ["/types"]);
        assert_eq!(fields(AccessRole::Admin, &scope(&["a"], &[])), ["/types"]);
        assert_eq!(fields(AccessRole::Admin, &scope(&[], &["a"])), ["/queues"]);
        assert!(fields(AccessRole::Viewer, &blind).is_empty());
        assert!(fields(AccessRole::Worker, &scope(&["a"], &[])).is_empty());
    }
}
