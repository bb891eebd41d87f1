//! Which parents the tasks of a batch wait for. Pure: the stores look up the ids that this asks
//! for.
//!
//! The inserts of both stores call it once the idempotency keys of the batch are known. A replayed
//! member stands for its first task. A refused member takes along the members that depend on it.
//! Linear in the number of members and dependencies.

use std::collections::{BTreeSet, HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::state::State;
use punctual_core::task::{Body, NewTask, OnDependencyFailure};
use punctual_core::trail::Trail;

/// The status of a member of a batch before its dependencies are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberStatus {
    /// It is new.
    New,
    /// It was submitted before, as this task.
    As(TaskId),
    /// It is refused.
    Refused,
    /// Its queue is full: it may be submitted again.
    PutOff,
}

/// A parent outside the batch, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownParent {
    pub tenant: String,
    pub state: State,
}

/// The decision about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberPlan {
    /// Its status stays.
    Stays,
    /// It depends on this task, which does not exist.
    Unknown(TaskId),
    /// It is stored.
    Create(Prerequisites),
}

/// What a new task waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prerequisites {
    /// Every task that it depends on.
    pub depends_on: Vec<TaskId>,
    /// Those that it waits for.
    pub edges: Vec<TaskId>,
    /// Those of the edges whose parents have finished, and in which state.
    pub ended: Vec<(TaskId, State)>,
    /// Whether other members of the batch wait for it.
    pub awaited: bool,
}

impl Prerequisites {
    /// The first state of a task with these prerequisites.
    pub(crate) fn state(&self) -> State {
        if self.edges.is_empty() { State::Pending } else { State::Blocked }
    }

    /// Writes the dependencies and the first state into a new task.
    pub(crate) fn write_into(&self, body: &mut Body, trail: &mut Trail) {
        body.dependencies.ids.clone_from(&self.depends_on);
        if self.state() == State::Blocked {
            *trail = trail.beginning_in(State::Blocked);
        }
    }
}

/// A batch and the status of each member.
pub(crate) struct DependencyBatch<'a> {
    tasks: &'a [NewTask],
    statuses: &'a [MemberStatus],
    place_of: HashMap<TaskId, usize>,
    put_off: &'a HashSet<TaskId>,
}

/// What a dependency points at.
#[derive(Clone, Copy)]
enum DependencyTarget {
    /// A member that is new.
    Member(usize),
    /// A task outside the batch, which may not exist.
    Outside(TaskId),
    /// A member that may be submitted again.
    Later,
    Nowhere,
}

impl<'a> DependencyBatch<'a> {
    /// A batch. `put_off` are members that are not among `tasks` because their queues are full.
    pub(crate) fn new(tasks: &'a [NewTask], statuses: &'a [MemberStatus], put_off: &'a HashSet<TaskId>) -> Self {
        let place_of = tasks.iter().enumerate().map(|(place, task)| (task.id, place)).collect();
        Self { tasks, statuses, place_of, put_off }
    }

    /// The ids outside the batch that must be looked up, in order.
    pub(crate) fn outside(&self) -> Vec<TaskId> {
        let mut outside: Vec<TaskId> = self.named_outside().into_iter().map(|(id, _)| id).collect();
        outside.dedup();
        outside
    }

    /// The same, each with the tenants whose tasks name it.
    pub(crate) fn named_outside(&self) -> BTreeSet<(TaskId, &str)> {
        let names = self
            .wanted()
            .flat_map(|(_, task)| task.body.dependencies.ids.iter().map(|id| (*id, task.lane.tenant.as_str())));
        let outside = names.filter_map(|(id, tenant)| match self.target(id) {
            DependencyTarget::Outside(id) => Some((id, tenant)),
            _ => None,
        });
        outside.collect()
    }

    /// Decides about every member, given the parents outside the batch.
    pub(crate) fn plan(&self, known: &HashMap<TaskId, KnownParent>) -> Vec<MemberPlan> {
        let refused = self.refused(known);
        let mut plans: Vec<MemberPlan> =
            refused.iter().map(|why| why.map_or(MemberPlan::Stays, MemberPlan::Unknown)).collect();
        let mut awaited: HashSet<usize> = HashSet::new();
        for (place, task) in self.new_ones().filter(|(place, _)| refused[*place].is_none()) {
            let mut waits = Prerequisites::default();
            let mut seen: HashSet<TaskId> = HashSet::new();
            for id in &task.body.dependencies.ids {
                match self.target(*id) {
                    DependencyTarget::Member(member) if seen.insert(self.tasks[member].id) => {
                        awaited.insert(member);
                        waits.depends_on.push(self.tasks[member].id);
                        waits.edges.push(self.tasks[member].id);
                    }
                    DependencyTarget::Outside(id) if seen.insert(id) => {
                        waits.depends_on.push(id);
                        let state = known.get(&id).map(|known| known.state);
                        if let Some(state) =
                            state.filter(|state| is_waited_for(*state, task.body.dependencies.on_failure))
                        {
                            waits.edges.push(id);
                            waits.ended.extend(state.is_final().then_some((id, state)));
                        }
                    }
                    _ => {}
                }
            }
            plans[place] = MemberPlan::Create(waits);
        }
        for place in awaited {
            if let MemberPlan::Create(waits) = &mut plans[place] {
                waits.awaited = true;
            }
        }
        plans
    }

    /// The members that cannot be stored, each with the dependency that is missing. A member that
    /// is put off is refused only if a later submission would be refused too.
    fn refused(&self, known: &HashMap<TaskId, KnownParent>) -> Vec<Option<TaskId>> {
        let mut refused: Vec<Option<TaskId>> = vec![None; self.tasks.len()];
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        let (mut missing, mut later) = (Vec::new(), Vec::new());
        for (place, task) in self.wanted() {
            for id in &task.body.dependencies.ids {
                let is_known = match self.target(*id) {
                    DependencyTarget::Member(member) => {
                        children.entry(member).or_default().push(place);
                        self.tasks[member].lane.tenant == task.lane.tenant
                    }
                    DependencyTarget::Outside(id) => {
                        known.get(&id).is_some_and(|known| known.tenant == task.lane.tenant)
                    }
                    DependencyTarget::Later => {
                        // That member may still be refused for good.
                        if let Some(member) = self.place_of.get(id) {
                            children.entry(*member).or_default().push(place);
                        }
                        later.push((place, *id));
                        true
                    }
                    DependencyTarget::Nowhere => false,
                };
                if !is_known {
                    missing.push((place, *id));
                }
            }
        }
        let is_new = |place: usize| self.statuses[place] == MemberStatus::New;
        // Missing parents go first, through all generations: waiting does not help with them.
        for (reasons, is_for_good) in [(missing, true), (later, false)] {
            let mut to_visit: Vec<usize> = Vec::new();
            for (place, id) in reasons {
                if refused[place].is_none() && (is_for_good || is_new(place)) {
                    refused[place] = Some(id);
                    to_visit.push(place);
                }
            }
            while let Some(parent) = to_visit.pop() {
                for child in children.remove(&parent).unwrap_or_default() {
                    if refused[child].is_none() && (is_for_good || is_new(child)) {
                        refused[child] = Some(self.tasks[parent].id);
                        to_visit.push(child);
                    }
                }
            }
        }
        refused
    }

    /// The members that are new, or would be if their queues had room.
    fn wanted(&self) -> impl Iterator<Item = (usize, &'a NewTask)> {
        let statuses = self.statuses;
        let is_wanted = move |place: usize| matches!(statuses[place], MemberStatus::New | MemberStatus::PutOff);
        self.tasks.iter().enumerate().filter(move |(place, _)| is_wanted(*place))
    }

    fn new_ones(&self) -> impl Iterator<Item = (usize, &'a NewTask)> {
        let statuses = self.statuses;
        self.tasks.iter().enumerate().filter(move |(place, _)| statuses[*place] == MemberStatus::New)
    }

    fn target(&self, id: TaskId) -> DependencyTarget {
        let Some(place) = self.place_of.get(&id) else {
            return if self.put_off.contains(&id) { DependencyTarget::Later } else { DependencyTarget::Outside(id) };
        };
        match self.statuses[*place] {
            MemberStatus::New => DependencyTarget::Member(*place),
            MemberStatus::Refused => DependencyTarget::Nowhere,
            MemberStatus::PutOff => DependencyTarget::Later,
            MemberStatus::As(first) => match self.place_of.get(&first) {
                Some(place) if self.statuses[*place] == MemberStatus::New => DependencyTarget::Member(*place),
                _ => DependencyTarget::Outside(first),
            },
        }
    }
}

/// Whether a task waits for a parent in this state. A dead letter may be re-driven; the other final
/// states do not change.
pub(crate) fn is_waited_for(state: State, on_failure: OnDependencyFailure) -> bool {
    match state {
        State::Completed => false,
        State::Cancelled | State::Failed => on_failure != OnDependencyFailure::Run,
        _ => true,
    }
}

/// The column of ids: 16 bytes each; NULL when there are none.
pub(crate) fn ids_column(ids: &[TaskId]) -> Option<Vec<u8>> {
    (!ids.is_empty()).then(|| ids.iter().flat_map(|id| id.uuid().into_bytes()).collect())
}

/// The ids of a column.
pub(crate) fn ids(column: Option<&[u8]>) -> Option<Vec<TaskId>> {
    let column = column.unwrap_or_default();
    let (ids, rest) = column.as_chunks::<16>();
    rest.is_empty().then(|| ids.iter().map(|id| TaskId::from_uuid(uuid::Uuid::from_bytes(*id))).collect())
}

/// The column of a policy: NULL for the usual one.
pub(crate) fn policy_column(policy: OnDependencyFailure) -> Option<&'static str> {
    (policy != OnDependencyFailure::Cancel).then(|| policy.as_str())
}

/// The policy of a column.
pub(crate) fn policy(column: Option<&str>) -> Option<OnDependencyFailure> {
    column.map_or(Some(OnDependencyFailure::Cancel), OnDependencyFailure::from_name)
}

#[cfg(test)]
mod tests;
