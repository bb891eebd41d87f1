//! Bugs of the loops that find lost tasks.

use punctual_core::store::Head;
use punctual_core::task::Task;

use super::spoilt::Mischief;

/// See [`super::Bug::SweepOff`].
pub struct SweepOff;

impl Mischief for SweepOff {
    fn heads(&self, _: Vec<Head>) -> Vec<Head> {
        Vec::new()
    }
}

/// See [`super::Bug::ReaperBlind`].
pub struct ReaperBlind;

impl Mischief for ReaperBlind {
    fn overdue(&self, _: Vec<Task>) -> Vec<Task> {
        Vec::new()
    }
}
