//! Tasks of a batch that depend on each other: who waits for itself, and who for a task that is refused. Linear.
//!
//! Called by `POST /v1/tasks/batch` with what was judged of each task by itself; what comes
//! out has no circles, and nobody in it depends on a member that is not in it.

use std::collections::HashMap;
use std::fmt::Write as _;

use punctual_core::ids::TaskId;
use punctual_core::task::NewTask;

use crate::problem::{Code, Problem};

/// A task of a batch, or why not.
pub type Verdict = Result<NewTask, Problem>;

/// Members of a circle that are named; of more it is said how many.
const NAMED: usize = 10;

/// Refuses the members that wait for themselves, and those that depend on a member that is refused.
pub fn refuse_impossible(verdicts: &mut [Verdict], ids: &[TaskId]) {
    let Some(graph) = Graph::of(verdicts, ids) else { return };
    for circle in graph.circles() {
        let members = named(&circle);
        for place in circle.iter().copied() {
            let detail = match &circle[..] {
                [_] => "it waits for itself: its depends_on names its own place in the batch".to_owned(),
                _ => format!("it waits for itself: the tasks {members} of the batch depend on each other in a circle"),
            };
            let pointer = format!("/tasks/{place}/depends_on");
            verdicts[place] =
                Err(Problem::new(Code::DependencyCycle, detail).at(pointer, "must not lead back to the task"));
        }
    }
    let mut refused: Vec<usize> = (0..verdicts.len()).filter(|place| verdicts[*place].is_err()).collect();
    while let Some(parent) = refused.pop() {
        for child in &graph.children[parent] {
            if verdicts[*child].is_ok() {
                verdicts[*child] = Err(depends_on_refused(*child, parent));
                refused.push(*child);
            }
        }
    }
}

/// The refusal of a task that depends on another of its batch, for which there is no room now: the two can be tried again.
pub fn depends_on_put_off(parent: usize, refusal: &Problem) -> Problem {
    let detail = format!(
        "it depends on task {parent} of the batch, which was refused for now; nothing was stored of it, try both again later"
    );
    Problem::new(refusal.code(), detail).retry_after(refusal.retry_after_seconds().unwrap_or(1))
}

/// The refusal of a task that depends on another of its batch, which is refused.
pub fn depends_on_refused(child: usize, parent: usize) -> Problem {
    let detail = format!("it depends on task {parent} of the batch, which was refused; nothing was stored of it");
    Problem::new(Code::UnknownDependency, detail)
        .at(format!("/tasks/{child}/depends_on"), format!("names task {parent} of the batch, which was refused"))
}

fn named(circle: &[usize]) -> String {
    let mut text = circle.iter().take(NAMED).map(usize::to_string).collect::<Vec<_>>().join(", ");
    match circle.len().saturating_sub(NAMED) {
        0 => {}
        1 => text.push_str(" and one other"),
        more => write!(text, " and {more} others").expect("invariant: a string can be written to"),
    }
    text
}

/// Who depends on whom, by places.
struct Graph {
    parents: Vec<Vec<usize>>,
    children: Vec<Vec<usize>>,
}

impl Graph {
    /// None if nobody depends on a member.
    fn of(verdicts: &[Verdict], ids: &[TaskId]) -> Option<Self> {
        let place_of: HashMap<TaskId, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let mut graph = Self { parents: vec![Vec::new(); verdicts.len()], children: vec![Vec::new(); verdicts.len()] };
        let mut any = false;
        for (child, task) in
            verdicts.iter().enumerate().filter_map(|(place, verdict)| Some((place, verdict.as_ref().ok()?)))
        {
            for parent in task.body.dependencies.ids.iter().filter_map(|id| place_of.get(id)) {
                graph.parents[child].push(*parent);
                graph.children[*parent].push(child);
                any = true;
            }
        }
        any.then_some(graph)
    }

    /// The sets of members that all depend on each other (strongly connected components, after Tarjan), each sorted. No
    /// recursion: a circle may be as long as a batch.
    fn circles(&self) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let count = self.parents.len();
        let (mut index, mut low) = (vec![UNSEEN; count], vec![0; count]);
        let (mut on_stack, mut stack) = (vec![false; count], Vec::new());
        let (mut circles, mut next) = (Vec::new(), 0);
        for root in 0..count {
            if index[root] != UNSEEN {
                continue;
            }
            // A node and how many of its parents were looked at.
            let mut path: Vec<(usize, usize)> = vec![(root, 0)];
            while let Some((node, looked)) = path.last_mut() {
                let node = *node;
                if *looked == 0 {
                    (index[node], low[node]) = (next, next);
                    next += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                if let Some(parent) = self.parents[node].get(*looked).copied() {
                    *looked += 1;
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
                    let mut circle = stack.split_off(begin);
                    for member in &circle {
                        on_stack[*member] = false;
                    }
                    if circle.len() > 1 || self.parents[node].contains(&node) {
                        circle.sort_unstable();
                        circles.push(circle);
                    }
                }
            }
        }
        circles
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use punctual_core::ids::NodeId;
    use punctual_core::time::Timestamp;

    use super::*;
    use crate::state::ApiConfig;
    use crate::submit::Submitter;

    /// A batch whose members depend on those at these places.
    fn batch(of: &[Vec<usize>]) -> (Vec<Verdict>, Vec<TaskId>) {
        let config = ApiConfig::default();
        let submitter = Submitter::new(&config, "acme", Timestamp::from_millis(0), NodeId::new(7));
        let ids: Vec<TaskId> = of.iter().map(|_| TaskId::new()).collect();
        let task = |(place, parents): (usize, &Vec<usize>)| {
            let mut task = submitter.check(punctual_client::NewTask::of_type("t"), None).unwrap();
            task.id = ids[place];
            task.body.dependencies.ids = parents.iter().map(|parent| ids[*parent]).collect();
            Ok(task)
        };
        (of.iter().enumerate().map(task).collect(), ids)
    }

    fn codes(of: &[Vec<usize>]) -> Vec<Option<Code>> {
        let (mut verdicts, ids) = batch(of);
        refuse_impossible(&mut verdicts, &ids);
        verdicts.iter().map(|verdict| verdict.as_ref().err().map(Problem::code)).collect()
    }

    const CYCLE: Option<Code> = Some(Code::DependencyCycle);
    const UNKNOWN: Option<Code> = Some(Code::UnknownDependency);

    #[test]
    fn a_circle_is_refused_with_those_that_depend_on_it() {
        assert_eq!(codes(&[vec![1], vec![0], vec![1], vec![2], vec![]]), [CYCLE, CYCLE, UNKNOWN, UNKNOWN, None]);
        // Between two circles, and before one: in none.
        assert_eq!(
            codes(&[vec![1], vec![0], vec![0], vec![2, 4], vec![3], vec![]]),
            [CYCLE, CYCLE, UNKNOWN, CYCLE, CYCLE, None]
        );
    }

    #[test]
    fn its_members_are_named() {
        let (mut verdicts, ids) = batch(&[vec![], vec![2], vec![1]]);
        refuse_impossible(&mut verdicts, &ids);
        let problem = verdicts[2].as_ref().unwrap_err();
        assert!(problem.detail().contains("tasks 1, 2 of the batch"), "{}", problem.detail());
        assert_eq!(problem.errors()[0].pointer, "/tasks/2/depends_on");
        let all = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9";
        assert_eq!(named(&(0..10).collect::<Vec<_>>()), all);
        assert_eq!(named(&(0..11).collect::<Vec<_>>()), format!("{all} and one other"));
        assert_eq!(named(&(0..12).collect::<Vec<_>>()), format!("{all} and 2 others"));
    }

    #[test]
    fn a_diamond_is_none() {
        assert_eq!(codes(&[vec![], vec![0], vec![0], vec![1, 2]]), [None; 4]);
    }

    #[test]
    fn who_depends_on_a_refused_member_is_refused() {
        let (mut verdicts, ids) = batch(&[vec![], vec![0], vec![1], vec![]]);
        verdicts[0] = Err(Problem::new(Code::InvalidRequest, "bad"));
        refuse_impossible(&mut verdicts, &ids);
        let codes: Vec<_> = verdicts.iter().map(|verdict| verdict.as_ref().err().map(Problem::code)).collect();
        assert_eq!(codes, [Some(Code::InvalidRequest), UNKNOWN, UNKNOWN, None]);
    }

    #[test]
    fn a_circle_as_long_as_a_batch_is_found_at_once() {
        let many = 10_000;
        let of: Vec<Vec<usize>> = (0..many).map(|place| vec![(place + 1) % many]).collect();
        let begin = std::time::Instant::now();
        assert!(codes(&of).iter().all(|code| *code == CYCLE));
        assert!(begin.elapsed() < std::time::Duration::from_secs(2), "{:?}", begin.elapsed());
    }

    proptest! {
        /// Whoever can reach itself is in a circle, and nobody else.
        #[test]
        fn circles_are_what_reaches_itself(of in prop::collection::vec(prop::collection::vec(0..9_usize, 0..3), 9)) {
            let reaches = |from: usize| {
                let (mut seen, mut next) = (HashSet::new(), of[from].clone());
                while let Some(node) = next.pop() {
                    if seen.insert(node) {
                        next.extend(&of[node]);
                    }
                }
                seen
            };
            let told = codes(&of);
            for (place, code) in told.iter().enumerate() {
                let reached = reaches(place);
                let expected = if reached.contains(&place) {
                    CYCLE
                } else if reached.iter().any(|other| reaches(*other).contains(other)) {
                    UNKNOWN
                } else {
                    None
                };
                prop_assert_eq!(*code, expected, "{} of {:?}", place, of);
            }
        }
    }
}
