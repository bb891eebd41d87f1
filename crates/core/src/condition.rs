//! A caller's condition on the version of a thing before a change: `If-Match` and `If-None-Match`.
//!
//! The API reads it from a request. The code that changes the thing asks [`Condition::holds`], in
//! the transaction of the change or in the read that the change depends on. A thing that does not
//! exist has no version, and matches nothing.

/// The versions that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Any version, if the thing exists (`*`).
    Any,
    /// One of these versions.
    These(Vec<u64>),
}

impl Versions {
    fn name(&self, there: Option<u64>) -> bool {
        match (self, there) {
            (_, None) => false,
            (Versions::Any, Some(_)) => true,
            (Versions::These(versions), Some(version)) => versions.contains(&version),
        }
    }
}

/// A condition; the default requires nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The thing is at one of these.
    pub at: Option<Versions>,
    /// The thing is at none of these.
    pub not_at: Option<Versions>,
}

impl Condition {
    /// Requires one of these versions.
    pub fn at(versions: impl Into<Vec<u64>>) -> Self {
        Self { at: Some(Versions::These(versions.into())), not_at: None }
    }

    /// Requires that the thing exists.
    pub const fn there() -> Self {
        Self { at: Some(Versions::Any), not_at: None }
    }

    /// Requires that the thing does not exist.
    pub const fn absent() -> Self {
        Self { at: None, not_at: Some(Versions::Any) }
    }

    /// Whether nothing is required.
    pub const fn is_none(&self) -> bool {
        self.at.is_none() && self.not_at.is_none()
    }

    /// Whether it holds for a thing at this version; none if the thing does not exist.
    pub fn holds(&self, there: Option<u64>) -> bool {
        self.at.as_ref().is_none_or(|versions| versions.name(there))
            && !self.not_at.as_ref().is_some_and(|versions| versions.name(there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_thing_matches_nothing() {
        let these = |versions: &[u64]| Some(Versions::These(versions.to_vec()));
        let other = Condition { at: None, not_at: these(&[3]) };
        let both = Condition { at: these(&[3, 4]), not_at: these(&[4]) };
        let never = Condition { at: Some(Versions::Any), not_at: Some(Versions::Any) };
        for (condition, absent, at_three, at_four) in [
            (Condition::default(), true, true, true),
            (Condition::there(), false, true, true),
            (Condition::absent(), true, false, false),
            (Condition::at([3]), false, true, false),
            (Condition::at([]), false, false, false),
            (other, true, false, true),
            (both, false, true, false),
            (never, false, false, false),
        ] {
            let holds = [None, Some(3), Some(4)].map(|there| condition.holds(there));
            assert_eq!(holds, [absent, at_three, at_four], "{condition:?}");
        }
    }
}
