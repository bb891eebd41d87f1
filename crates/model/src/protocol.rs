//! The actions in a world and their results: the [`Model`] that the checker explores.

use punctual_core::state::State;
use stateright::{Model, Property};

use crate::bounds::{ModelBounds, Route};
use crate::bug::{Bug, Finding};
use crate::law::{Author, Law, Laws, broken_by, is_in_trail};
use crate::machine::decide;
use crate::operation::{Operation, PlannedWrite, reap_reason};
use crate::row::{HoldLeft, Letter, ModelRow, SettleReport, StepKind, Version};
use crate::settle::{ModelDecision, WorkerAnswer};
use crate::world::{Action, World};

/// The lease protocol within bounds, perhaps with a bug.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// The size of the world.
    pub bounds: ModelBounds,
    /// The planted bug.
    pub bug: Option<Bug>,
}

impl Protocol {
    /// The protocol as it is.
    pub fn correct(bounds: ModelBounds) -> Self {
        Self { bounds, bug: None }
    }

    /// The protocol with a bug, in a small world in which it shows.
    pub fn with(bug: Bug) -> Self {
        Self { bounds: bug.bounds(), bug: Some(bug) }
    }

    /// Whether this bug was planted.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether an action happens sooner or later if it stays possible. Time passes, due tasks are
    /// claimed, the reaper runs, and the server writes its open operations. Workers, clients and
    /// the broker need not do anything.
    pub fn is_fair(&self, world: &World, action: &Action) -> bool {
        match action {
            Action::Tick | Action::Write(_) => true,
            Action::Claim { taken, .. } => *taken,
            // A dispatched task that was given back as often as the bounds allow cannot run out of
            // time: its message arrives.
            Action::Start { task, .. } => !self.may_go_back(&world.rows[*task]),
            Action::Open(Operation { task, what: PlannedWrite::Reap(_), .. }) => self.is_overdue(&world.rows[*task]),
            _ => false,
        }
    }

    /// Whether the bounds let the task go back uncounted once more.
    fn may_go_back(&self, row: &ModelRow) -> bool {
        row.times(StepKind::GivenBack) < self.bounds.give_backs
    }

    fn is_over(&self, world: &World) -> bool {
        match self.bug.map(Bug::finding) {
            Some(Finding::Broken(law)) => world.broken.has(law),
            _ => !world.broken.is_empty(),
        }
    }

    fn has_room(&self, world: &World) -> bool {
        world.clients.len() < self.bounds.clients
    }

    fn actions_on(&self, world: &World, task: usize, actions: &mut Vec<Action>) {
        let row = &world.rows[task];
        if self.has_room(world) && self.may_go_back(row) {
            actions.push(Action::Claim { task, taken: false });
        }
        actions.push(Action::Claim { task, taken: true });
        if self.bounds.tasks[task] == Route::Push {
            actions.extend(row.messages().map(|version| Action::Start { task, version }));
        }
        for token in row.tokens() {
            actions.extend(Letter::ALL.map(|letter| Action::Complete { task, token, letter }));
            actions.push(Action::Beat { task, token, detach: false });
            if row.hold.is_some_and(|hold| hold.of_node) {
                actions.push(Action::Beat { task, token, detach: true });
            }
            let reportable = |report: &SettleReport| {
                *report != SettleReport::Released || self.may_go_back(row) || row.position.version != token
            };
            actions.extend(SettleReport::ALL.into_iter().filter(reportable).map(|report| Action::Settle {
                task,
                token,
                report,
            }));
        }
        let open = |what| Operation { task, read: row.position, judged: None, what };
        if self.has_room(world) {
            actions.push(Action::Open(open(PlannedWrite::Cancel)));
            if row.times(StepKind::Redriven) < self.bounds.redrives {
                actions.push(Action::Open(open(PlannedWrite::Redrive)));
            }
        }
        if world.reaper.is_none() && (self.is_overdue(row) || self.may_seem_dead(row) || may_be_extended(row)) {
            let judging = |reaped| Operation { judged: row.hold, ..open(PlannedWrite::Reap(reaped)) };
            actions.extend(reap_reason(row).map(|reaped| Action::Open(judging(reaped))));
        }
    }

    /// Whether other nodes may consider the node that holds the task dead, rightly or not.
    fn may_seem_dead(&self, row: &ModelRow) -> bool {
        row.hold.is_some_and(|hold| hold.of_node) && (row.position.state == State::Running || self.may_go_back(row))
    }

    /// Time passes, unless a dispatched task would be given back once more than the bounds allow.
    fn tick(&self, world: &World) -> Option<World> {
        let stands_still = world.rows.iter().any(|row| {
            let runs_out = row.position.state == State::Queued && row.hold.is_some_and(|hold| hold.ticks == 1);
            runs_out && !self.may_go_back(row)
        });
        let mut after = world.clone();
        after.rows.iter_mut().for_each(ModelRow::tick);
        after.reaper.iter_mut().filter_map(|operation| operation.judged.as_mut()).for_each(HoldLeft::tick);
        (!stands_still && after != *world).then_some(after)
    }

    fn claimed(&self, world: &World, task: usize, taken: bool) -> Option<World> {
        if self.has(Bug::SweepOff) && world.crashes < self.bounds.crashes {
            return None;
        }
        let mut row = self.claim(&world.rows[task], self.bounds.tasks[task])?;
        let read = row.position;
        let given_up = !taken && read.state.is_held();
        if given_up {
            row.promised = 0;
        } else if !taken {
            return None;
        }
        let mut after = self.written(world, task, row, Author::Other)?;
        if given_up {
            after.open(Operation { task, read, judged: None, what: PlannedWrite::GiveBack });
        }
        Some(after)
    }

    /// The world after a write, with the laws that it breaks; none if nothing changes.
    fn written(&self, world: &World, task: usize, row: ModelRow, author: Author) -> Option<World> {
        let before = &world.rows[task];
        if *before == row {
            return None;
        }
        let broken = world.broken.with(broken_by(&self.bounds, before, &row, author));
        let mut after = World { broken, ..world.clone() };
        after.rows[task] = row;
        Some(after)
    }

    fn completed(&self, world: &World, task: usize, token: Version, letter: Letter) -> Option<World> {
        let mut row = self.complete(&world.rows[task], token, letter)?;
        row.accepted.push((token, SettleReport::Completed(letter)));
        self.written(world, task, row, Author::Holder(token))
    }

    fn settled(&self, world: &World, task: usize, token: Version, report: SettleReport) -> Option<World> {
        let row = &world.rows[task];
        match self.judge(row, token, report) {
            ModelDecision::Answer(WorkerAnswer::Accepted) if !is_in_trail(row, token, report) => {
                let mut after = world.clone();
                after.broken.add_unless(false, Law::AnswersTrue);
                Some(after)
            }
            // A completion is written without a read first, and that write would have succeeded.
            ModelDecision::Answer(_)
            | ModelDecision::Write(PlannedWrite::Settle { report: SettleReport::Completed(_), .. }) => None,
            ModelDecision::Write(what) => {
                self.opened(world, Operation { task, read: row.position, judged: None, what })
            }
        }
    }

    fn opened(&self, world: &World, operation: Operation) -> Option<World> {
        let reaps = matches!(operation.what, PlannedWrite::Reap(_));
        if !reaps && !self.has_room(world) {
            return None;
        }
        decide(operation.read, self.event(&operation, &world.rows[operation.task]))?;
        let mut after = world.clone();
        if reaps {
            after.reaper = Some(operation);
        } else {
            after.open(operation);
        }
        Some(after)
    }

    /// The rows stay. Open operations are lost, and must not have been acknowledged.
    fn crashed(&self, world: &World) -> World {
        let mut broken = world.broken;
        for operation in world.clients.iter().filter(|_| self.has(Bug::AcknowledgedBeforeWritten)) {
            if let PlannedWrite::Settle { token, report } = operation.what {
                broken.add_unless(is_in_trail(&world.rows[operation.task], token, report), Law::AnswersTrue);
            }
        }
        World { clients: Vec::new(), reaper: None, crashes: world.crashes - 1, broken, ..world.clone() }
    }

    fn wrote(&self, world: &World, operation: &Operation) -> Option<World> {
        // A hold that the reaper read early is judged only after it has run out.
        if operation.judged.is_some_and(|hold| !hold.of_node && !self.has_run_out(hold)) {
            return None;
        }
        let task = operation.task;
        let row = &world.rows[task];
        let write = decide(operation.read, self.event(operation, row))?;
        let held = self.is_still_held(row, operation.judged);
        let mut after = match self.apply(row, &write, self.condition(operation)).filter(|_| held) {
            Some(mut row) => {
                if let PlannedWrite::Settle { token, report } = operation.what {
                    row.accepted.push((token, report));
                }
                self.written(world, task, row, operation.author())?
            }
            None => world.clone(),
        };
        after.close(operation);
        Some(after)
    }
}

/// Whether a run's hold could be extended before the reaper judges it. A store may show the
/// extension late.
fn may_be_extended(row: &ModelRow) -> bool {
    let runs = row.position.state == State::Running && !row.position.cancel_requested;
    runs && row.hold.is_some_and(|hold| hold.ticks > 0 && hold.ticks < hold.deadline)
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let rows = self.bounds.tasks.iter().map(|_| ModelRow::submitted(self.bounds.expires_in)).collect();
        let crashes = self.bounds.crashes;
        vec![World { rows, clients: Vec::new(), reaper: None, crashes, broken: Laws::default() }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if self.is_over(world) {
            return;
        }
        actions.push(Action::Tick);
        for task in 0..world.rows.len() {
            self.actions_on(world, task, actions);
        }
        let in_flight = world.clients.iter().chain(&world.reaper);
        actions.extend(in_flight.map(|operation| Action::Write(*operation)));
        if world.crashes > 0 && (world.reaper.is_some() || !world.clients.is_empty()) {
            actions.push(Action::Crash);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        match action {
            Action::Tick => self.tick(world),
            Action::Claim { task, taken } => self.claimed(world, task, taken),
            Action::Start { task, version } => {
                self.written(world, task, self.start(&world.rows[task], version)?, Author::Other)
            }
            Action::Complete { task, token, letter } => self.completed(world, task, token, letter),
            Action::Beat { task, token, detach } => {
                let row = self.extend(&world.rows[task], token, detach)?;
                self.written(world, task, row, Author::Holder(token))
            }
            Action::Settle { task, token, report } => self.settled(world, task, token, report),
            Action::Open(operation) => self.opened(world, operation),
            Action::Write(operation) => self.wrote(world, &operation),
            Action::Crash => Some(self.crashed(world)),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        crate::properties::of(&self.bounds)
    }
}
