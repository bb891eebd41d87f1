//! A body as it was sent, together with the faults of its shape.
//!
//! A body that has such faults is read without the members at fault, so that the values of the
//! others can be checked in the same answer. Invariant: what a check makes of a body comes out only
//! if the body has no fault, so nobody acts on a body that was never sent.

use crate::SubmissionError;
use crate::faults::Faults;

/// A body of a request (see the module).
#[derive(Clone, Debug)]
pub struct Sent<T> {
    /// None if nothing can be read of it; then there is a fault.
    value: Option<T>,
    faults: Faults,
}

impl<T> Sent<T> {
    pub(crate) fn new(value: Option<T>, faults: Faults) -> Self {
        debug_assert!(value.is_some() || !faults.is_empty(), "a body without a fault can be read");
        Self { value, faults }
    }

    /// A body without faults of its shape.
    pub fn good(value: T) -> Self {
        Self::new(Some(value), Faults::default())
    }

    /// The same body, with the faults of another part of the request.
    #[must_use]
    pub fn with(mut self, add: impl FnOnce(&mut Faults)) -> Self {
        add(&mut self.faults);
        self
    }

    /// What `check` makes of the body. It returns none only with a fault.
    pub fn check<R>(self, check: impl FnOnce(T, &mut Faults) -> Option<R>) -> Result<R, SubmissionError> {
        let Self { value, mut faults } = self;
        let checked = value.and_then(|value| check(value, &mut faults));
        faults.finish()?;
        Ok(checked.expect("invariant: nothing is missing without a fault"))
    }

    /// The same for a body that is looked at more than once.
    pub fn check_ref<R>(&self, check: impl FnOnce(&T, &mut Faults) -> Option<R>) -> Result<R, SubmissionError> {
        let mut faults = self.faults.clone();
        let checked = self.value.as_ref().and_then(|value| check(value, &mut faults));
        faults.finish()?;
        Ok(checked.expect("invariant: nothing is missing without a fault"))
    }

    /// What is left of the body, for [`Faults::part`].
    pub(crate) fn split(self) -> (Option<T>, Faults) {
        (self.value, self.faults)
    }
}
