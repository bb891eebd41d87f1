//! Dependencies between the tasks of one batch: cycles, and tasks that depend on a refused one.
//!
//! Called by `POST /v1/tasks/batch` after each task was checked by itself. Invariant: the accepted
//! tasks have no cycle, and none of them depends on a refused task of the batch. Linear in the
//! number of dependencies.

use std::collections::HashMap;
use std::fmt::Write as _;

use punctual_client::problem::FieldError;
use punctual_core::ids::TaskId;
use punctual_core::task::NewTask;

use crate::{ErrorCode, SubmissionError};

/// The maximum number of members of a cycle that an error lists; it counts the others.
const LISTED_MAX: usize = 10;

/// Refuses the members of cycles, and then every task that depends on a refused one. `members` has
/// a task or an error of the caller for each position, and `ids` the id that the task has or would
/// have.
pub fn refuse_impossible<E: From<SubmissionError>>(members: &mut [Result<NewTask, E>], ids: &[TaskId]) {
    let Some(graph) = DependencyGraph::of(members, ids) else { return };
    for cycle in graph.cycles() {
        let listed = listed(&cycle);
        for position in cycle.iter().copied() {
            let detail = match &cycle[..] {
                [_] => "it waits for itself: its depends_on names its own position in the batch".to_owned(),
                _ => format!("it waits for itself: the tasks {listed} of the batch depend on each other in a cycle"),
            };
            let fault = FieldError::new(format!("/tasks/{position}/depends_on"), "must not lead back to the task");
            let error = SubmissionError { code: ErrorCode::DependencyCycle, detail, faults: vec![fault], more: 0 };
            members[position] = Err(error.into());
        }
    }
    let mut refused: Vec<usize> = (0..members.len()).filter(|position| members[*position].is_err()).collect();
    while let Some(parent) = refused.pop() {
        debug_assert!(members[parent].is_err(), "only refused tasks refuse their dependents");
        for child in &graph.children[parent] {
            if members[*child].is_ok() {
                members[*child] = Err(depends_on_refused(*child, parent).into());
                refused.push(*child);
            }
        }
    }
}

/// The error of the task at `child`, which depends on the refused task at `parent` of its batch.
pub fn depends_on_refused(child: usize, parent: usize) -> SubmissionError {
    let detail = format!("it depends on task {parent} of the batch, which was refused; nothing was stored of it");
    let message = format!("names task {parent} of the batch, which was refused");
    let fault = FieldError::new(format!("/tasks/{child}/depends_on"), message);
    SubmissionError { code: ErrorCode::UnknownDependency, detail, faults: vec![fault], more: 0 }
}

fn listed(cycle: &[usize]) -> String {
    let mut text = cycle.iter().take(LISTED_MAX).map(usize::to_string).collect::<Vec<_>>().join(", ");
    match cycle.len().saturating_sub(LISTED_MAX) {
        0 => {}
        1 => text.push_str(" and one other"),
        more => write!(text, " and {more} others").expect("invariant: a string can be written to"),
    }
    text
}

/// The dependencies between members, by position.
struct DependencyGraph {
    parents: Vec<Vec<usize>>,
    children: Vec<Vec<usize>>,
}

impl DependencyGraph {
    /// None if no task depends on a member.
    fn of<E>(members: &[Result<NewTask, E>], ids: &[TaskId]) -> Option<Self> {
        let position_of: HashMap<TaskId, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        let mut graph = Self { parents: vec![Vec::new(); members.len()], children: vec![Vec::new(); members.len()] };
        let mut any = false;
        for (child, task) in members.iter().enumerate().filter_map(|(at, member)| Some((at, member.as_ref().ok()?))) {
            for parent in task.body.dependencies.ids.iter().filter_map(|id| position_of.get(id)) {
                graph.parents[child].push(*parent);
                graph.children[*parent].push(child);
                any = true;
            }
        }
        any.then_some(graph)
    }

    /// The sets of members that all depend on each other, each sorted: strongly connected
    /// components, after Tarjan. It does not recurse, since a cycle may be as long as a batch.
    fn cycles(&self) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let count = self.parents.len();
        let (mut index, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let (mut on_stack, mut stack) = (vec![false; count], Vec::new());
        let (mut cycles, mut next) = (Vec::new(), 0);
        for root in 0..count {
            if index[root] != UNSEEN {
                continue;
            }
            // A node and how many of its parents were visited.
            let mut path: Vec<(usize, usize)> = vec![(root, 0)];
            while let Some((node, visited)) = path.last_mut() {
                let node = *node;
                if *visited == 0 {
                    (index[node], low[node]) = (next, next);
                    next += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                if let Some(parent) = self.parents[node].get(*visited).copied() {
                    *visited += 1;
                    if index[parent] == UNSEEN {
                        path.push((parent, 0));
                    } else if on_stack[parent] {
                        low[node] = low[node].min(index[parent]);
                    }
                    continue;
                }
                path.pop();
                if let Some((before, _)) = path.last() {
                    low[*before] = low[*before].min(low[node]);
                }
                if low[node] == index[node] {
                    let begin = stack.iter().rposition(|other| *other == node).unwrap_or_default();
                    // Otherwise the component would take members of another one along.
                    debug_assert_eq!(stack.get(begin), Some(&node), "a node is on the stack until its component ends");
                    let mut cycle = stack.split_off(begin);
                    for member in &cycle {
                        on_stack[*member] = false;
                    }
                    if cycle.len() > 1 || self.parents[node].contains(&node) {
                        cycle.sort_unstable();
                        cycles.push(cycle);
                    }
                }
            }
        }
        cycles
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use punctual_core::ids::NodeId;
    use punctual_core::time::Timestamp;

    use super::*;
    use crate::{BatchContext, Faults, SubmissionRules, TaskValidator};

    type Member = Result<NewTask, SubmissionError>;

    /// A batch whose members depend on the members at these positions.
    fn batch(of: &[Vec<usize>]) -> (Vec<Member>, Vec<TaskId>) {
        let rules = SubmissionRules::default();
        let validator = TaskValidator::new(&rules, "acme", Timestamp::from_millis(0), NodeId::new(7));
        let ids: Vec<TaskId> = of.iter().map(|_| TaskId::new()).collect();
        let task = |(position, parents): (usize, &Vec<usize>)| {
            let mut task = validator
                .check(&mut Faults::default(), punctual_client::NewTask::of_type("t"), None, &BatchContext::none())
                .unwrap();
            task.id = ids[position];
            task.body.dependencies.ids = parents.iter().map(|parent| ids[*parent]).collect();
            Ok(task)
        };
        (of.iter().enumerate().map(task).collect(), ids)
    }

    fn codes(of: &[Vec<usize>]) -> Vec<Option<ErrorCode>> {
        let (mut members, ids) = batch(of);
        refuse_impossible(&mut members, &ids);
        members.iter().map(|member| member.as_ref().err().map(|error| error.code)).collect()
    }

    const CYCLE: Option<ErrorCode> = Some(ErrorCode::DependencyCycle);
    const UNKNOWN: Option<ErrorCode> = Some(ErrorCode::UnknownDependency);

    #[test]
    fn a_cycle_is_refused_with_its_dependents() {
        assert_eq!(codes(&[vec![1], vec![0], vec![1], vec![2], vec![]]), [CYCLE, CYCLE, UNKNOWN, UNKNOWN, None]);
        // A member between two cycles is in neither.
        assert_eq!(
            codes(&[vec![1], vec![0], vec![0], vec![2, 4], vec![3], vec![]]),
            [CYCLE, CYCLE, UNKNOWN, CYCLE, CYCLE, None]
        );
    }

    #[test]
    fn its_members_are_listed() {
        let (mut members, ids) = batch(&[vec![], vec![2], vec![1]]);
        refuse_impossible(&mut members, &ids);
        let error = members[2].as_ref().unwrap_err();
        assert!(error.detail.contains("tasks 1, 2 of the batch"), "{}", error.detail);
        assert_eq!(error.faults[0].pointer, "/tasks/2/depends_on");
        let all = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9";
        assert_eq!(listed(&(0..10).collect::<Vec<_>>()), all);
        assert_eq!(listed(&(0..11).collect::<Vec<_>>()), format!("{all} and one other"));
        assert_eq!(listed(&(0..12).collect::<Vec<_>>()), format!("{all} and 2 others"));
    }

    #[test]
    fn a_diamond_is_no_cycle() {
        assert_eq!(codes(&[vec![], vec![0], vec![0], vec![1, 2]]), [None; 4]);
    }

    #[test]
    fn a_dependent_of_a_refused_member_is_refused() {
        let (mut members, ids) = batch(&[vec![], vec![0], vec![1], vec![]]);
        members[0] =
            Err(SubmissionError { code: ErrorCode::Invalid, detail: "bad".to_owned(), faults: Vec::new(), more: 0 });
        refuse_impossible(&mut members, &ids);
        let codes: Vec<_> = members.iter().map(|member| member.as_ref().err().map(|error| error.code)).collect();
        assert_eq!(codes, [Some(ErrorCode::Invalid), UNKNOWN, UNKNOWN, None]);
    }

    #[test]
    fn a_cycle_as_long_as_a_batch_is_found_at_once() {
        let many = 10_000;
        let of: Vec<Vec<usize>> = (0..many).map(|position| vec![(position + 1) % many]).collect();
        let begin = std::time::Instant::now();
        assert!(codes(&of).iter().all(|code| *code == CYCLE));
        assert!(begin.elapsed() < std::time::Duration::from_secs(2), "{:?}", begin.elapsed());
    }

    proptest! {
        #[test]
        fn a_member_is_in_a_cycle_if_it_reaches_itself(of in prop::collection::vec(prop::collection::vec(0..9_usize, 0..3), 9)) {
            let reaches = |from: usize| {
                let (mut seen, mut next) = (HashSet::new(), of[from].clone());
                while let Some(node) = next.pop() {
                    if seen.insert(node) {
                        next.extend(&of[node]);
                    }
                }
                seen
            };
            let found = codes(&of);
            for (position, code) in found.iter().enumerate() {
                let reached = reaches(position);
                let expected = if reached.contains(&position) {
                    CYCLE
                } else if reached.iter().any(|other| reaches(*other).contains(other)) {
                    UNKNOWN
                } else {
                    None
                };
                prop_assert_eq!(*code, expected, "{} of {:?}", position, of);
            }
        }
    }
}
