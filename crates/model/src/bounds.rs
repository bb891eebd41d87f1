//! The sizes of the worlds that are checked.

/// How tasks reach their workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A worker leases them.
    Pull,
    /// They are dispatched through a broker and started by a node of ours.
    Push,
}

/// The bounds of a world. Time, and the number and the lateness of reports, are unbounded.
#[derive(Clone, Debug)]
pub struct ModelBounds {
    /// The tasks, all submitted at the start.
    pub tasks: Vec<Route>,
    /// The maximum number of retries of each.
    pub max_retries: u8,
    /// The number of lost pull workers that makes a task poison; zero means never.
    pub poison_after: u8,
    /// Ticks after which a task that was not started expires.
    pub expires_in: Option<u8>,
    /// How often each task may be re-driven.
    pub redrives: usize,
    /// How often each task may be given back uncounted.
    pub give_backs: usize,
    /// How many failures of each task are not counted: a breaker is open until then.
    pub spared: usize,
    /// The maximum number of operations, without the reaper's, that have read and not yet written.
    pub clients: usize,
    /// How often the server crashes.
    pub crashes: u8,
}

impl ModelBounds {
    /// Ticks of a lease: one in which a heartbeat extends it, and a last one.
    pub const LEASE: u8 = 2;
    /// The maximum number of ticks of a pull worker's run, with heartbeats.
    pub const DEADLINE: u8 = 3;
    /// Ticks within which a dispatched task must be started, and then within which its run must
    /// end.
    pub const DISPATCH: u8 = 1;

    /// One task of this route with a retry, a give-back, a re-drive and a crash.
    pub fn life(route: Route) -> Self {
        Self {
            tasks: vec![route],
            max_retries: 1,
            poison_after: 0,
            expires_in: None,
            redrives: 1,
            give_backs: 1,
            spared: 0,
            clients: 1,
            crashes: 1,
        }
    }

    /// One task for which two requests and the reaper race.
    pub fn races(route: Route) -> Self {
        Self { redrives: 0, clients: 2, ..Self::life(route) }
    }

    /// One task that expires unless it is started in time, and is poison when its pull worker is
    /// lost.
    pub fn expiring(route: Route) -> Self {
        Self { expires_in: Some(2), poison_after: 1, crashes: 0, ..Self::life(route) }
    }

    /// One task whose first failure happens under a breaker. Lost workers still count.
    pub fn under_breaker(route: Route) -> Self {
        Self { spared: 1, redrives: 0, give_backs: 0, poison_after: 2, ..Self::life(route) }
    }

    /// Two tasks, one of each route, under one clock and one server.
    pub fn two_tasks() -> Self {
        let tasks = vec![Route::Pull, Route::Push];
        Self { tasks, max_retries: 0, redrives: 0, crashes: 0, ..Self::life(Route::Pull) }
    }

    /// A whole life with races, which takes minutes. For `examples/explore.rs`.
    pub fn deep(route: Route) -> Self {
        Self { clients: 2, ..Self::life(route) }
    }

    /// Every world in which the tests check the protocol, by name.
    pub fn all() -> [(&'static str, Self); 9] {
        [
            ("a life, pulled", Self::life(Route::Pull)),
            ("a life, pushed", Self::life(Route::Push)),
            ("races, pulled", Self::races(Route::Pull)),
            ("races, pushed", Self::races(Route::Push)),
            ("expiring, pulled", Self::expiring(Route::Pull)),
            ("expiring, pushed", Self::expiring(Route::Push)),
            ("under a breaker, pulled", Self::under_breaker(Route::Pull)),
            ("under a breaker, pushed", Self::under_breaker(Route::Push)),
            ("two tasks", Self::two_tasks()),
        ]
    }
}
