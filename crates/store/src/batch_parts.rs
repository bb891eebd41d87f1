//! Splits a batch of submitted tasks into parts that can be stored one after the other. Pure.
//!
//! SQLite's insert calls it, so that small calls can pass a large batch. Invariants: the parts in
//! order are the batch in order, and tasks of the batch that depend on each other are in one part.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::task::NewTask;

/// Splits tasks into parts of `size`. A part is larger where its tasks depend on each other.
pub(crate) fn parts_of(tasks: Vec<NewTask>, size: usize) -> Vec<Vec<NewTask>> {
    let last_with = last_with(&tasks);
    let mut parts = Vec::with_capacity(tasks.len().div_ceil(size));
    let (mut part, mut ends_at) = (Vec::new(), 0);
    for ((at, task), last) in tasks.into_iter().enumerate().zip(last_with) {
        part.push(task);
        ends_at = last.max(ends_at);
        if part.len() >= size && ends_at <= at {
            parts.push(std::mem::take(&mut part));
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// For each task the place of the last one that must be in the same part.
fn last_with(tasks: &[NewTask]) -> Vec<usize> {
    let mut last_with = vec![0; tasks.len()];
    if tasks.iter().all(|task| task.body.dependencies.ids.is_empty()) {
        return last_with;
    }
    let place_of: HashMap<TaskId, usize> = tasks.iter().enumerate().map(|(at, task)| (task.id, at)).collect();
    for (at, task) in tasks.iter().enumerate() {
        for parent in task.body.dependencies.ids.iter().filter_map(|id| place_of.get(id)) {
            let (first, last) = (at.min(*parent), at.max(*parent));
            last_with[first] = last.max(last_with[first]);
        }
    }
    last_with
}

#[cfg(test)]
mod tests {
    use punctual_testkit::fixtures::task;

    use super::*;

    fn sizes(parts: &[Vec<NewTask>]) -> Vec<usize> {
        parts.iter().map(Vec::len).collect()
    }

    #[test]
    fn the_parts_are_the_batch_in_order() {
        let tasks = task().times(10);
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        let parts = parts_of(tasks, 4);
        assert_eq!(sizes(&parts), [4, 4, 2]);
        assert_eq!(parts.iter().flatten().map(|task| task.id).collect::<Vec<_>>(), ids);
        assert!(parts_of(Vec::new(), 4).is_empty());
    }

    #[test]
    fn tasks_that_depend_on_each_other_are_in_one_part() {
        let mut tasks = task().times(12);
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        // The first waits for a later one, which waits for an earlier one; nothing crosses 8.
        tasks[0].body.dependencies.ids = vec![ids[5]];
        tasks[7].body.dependencies.ids = vec![ids[4], TaskId::new()];
        assert_eq!(sizes(&parts_of(tasks, 2)), [8, 2, 2]);
    }
}
