//! How large a world is checked.

/// How tasks reach their workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A worker leases them.
    Pull,
    /// They are dispatched through a broker and started by a node of ours.
    Push,
}

/// What becomes of a heartbeat that comes when its lease has run out and nobody has taken the task back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateBeats {
    /// The hold is extended, as the store's contract says; but a worker that was late once gives its lease up for lost.
    Untrusted,
    /// The hold is extended, and the worker relies on what it was told.
    Trusted,
    /// The hold is not extended.
    Refused,
}

/// The bounds of a world. All that is not bounded here (time, how often and how late something is said) is
/// unbounded.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The tasks, all submitted at the start.
    pub tasks: Vec<Route>,
    /// Retries of each.
    pub max_retries: u8,
    /// Lost pull workers that make a task poison; zero means never.
    pub poison_after: u8,
    /// Ticks after which a task that was not started expires.
    pub expires_in: Option<u8>,
    /// How often each task may be re-driven.
    pub redrives: usize,
    /// How often each task may go back uncounted.
    pub give_backs: usize,
    /// Operations of workers, clients and dispatchers that have read and not yet written.
    pub clients: usize,
    /// How often the server crashes.
    pub crashes: u8,
    /// What a late heartbeat does.
    pub late_beats: LateBeats,
}

impl Bounds {
    /// Ticks of a lease, and of the time in which a dispatched task must be started.
    pub const LEASE: u8 = 1;
    /// Ticks of a pull worker's run at the most, with heartbeats.
    pub const DEADLINE: u8 = 2;

    /// One task for pull workers, with everything that can happen to it.
    pub fn pull() -> Self {
        Self {
            tasks: vec![Route::Pull],
            max_retries: 1,
            poison_after: 0,
            expires_in: None,
            redrives: 1,
            give_backs: 1,
            clients: 2,
            crashes: 1,
            late_beats: LateBeats::Untrusted,
        }
    }

    /// One task that is dispatched through a broker by nodes that may be presumed dead.
    pub fn push() -> Self {
        Self { tasks: vec![Route::Push], ..Self::pull() }
    }

    /// One task that expires unless it is started in time, and is poison when its worker is lost.
    pub fn expiring() -> Self {
        Self { expires_in: Some(2), poison_after: 1, ..Self::pull() }
    }

    /// Two tasks, one of each route, under one clock and one server.
    pub fn two_tasks() -> Self {
        Self {
            tasks: vec![Route::Pull, Route::Push],
            max_retries: 0,
            redrives: 0,
            give_backs: 0,
            clients: 1,
            crashes: 0,
            ..Self::pull()
        }
    }

    /// A world in which planted bugs are found quickly.
    pub fn small(route: Route) -> Self {
        Self { tasks: vec![route], clients: 1, ..Self::pull() }
    }

    /// Every world in which the protocol must hold, by name.
    pub fn all() -> [(&'static str, Self); 4] {
        [
            ("pull", Self::pull()),
            ("push", Self::push()),
            ("expiring", Self::expiring()),
            ("two tasks", Self::two_tasks()),
        ]
    }
}
