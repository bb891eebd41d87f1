//! The roles of a node and the adapters it can use. A name that this build does not know is refused
//! with a sentence that says so.

use std::fmt;

use super::secret::{SecretUrl, split_scheme};

/// A role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Serves the HTTP API.
    Api,
    /// Dispatches due tasks.
    Scheduler,
    /// Calls webhooks.
    Worker,
    /// Stands for election. The leader reaps, fires schedules and prunes.
    Leader,
}

/// Where tasks are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// `SQLite`, in the data directory.
    Sqlite,
    /// A `PostgreSQL` server.
    Postgres(SecretUrl),
}

/// What carries dispatched tasks to the webhook workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerChoice {
    /// None: the dispatcher hands webhooks over to the worker of its process.
    Embedded,
}

/// What elects the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorChoice {
    /// A table of the store.
    Store,
}

impl Role {
    /// The role with this name.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "api" => Ok(Role::Api),
            "scheduler" => Ok(Role::Scheduler),
            "worker" => Ok(Role::Worker),
            "leader" => Ok(Role::Leader),
            "dashboard" => Err("there is no dashboard in this version; leave that role out".to_owned()),
            _ => Err(format!("{name:?} is not a role; there are api, scheduler, worker and leader")),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Api => "api",
            Role::Scheduler => "scheduler",
            Role::Worker => "worker",
            Role::Leader => "leader",
        })
    }
}

impl StoreChoice {
    /// The store with this name or at this address.
    pub fn parse(name: &str) -> Result<Self, String> {
        match split_scheme(name) {
            None if name == "sqlite" => Ok(Self::Sqlite),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(SecretUrl::new(name))),
            _ => Err(only("stores", "sqlite and postgres://", name)),
        }
    }
}

impl BrokerChoice {
    /// The broker with this name.
    pub fn parse(name: &str) -> Result<Self, String> {
        if name == "embedded" { Ok(Self::Embedded) } else { Err(only("broker", "embedded only", name)) }
    }
}

impl CoordinatorChoice {
    /// The coordinator with this name.
    pub fn parse(name: &str) -> Result<Self, String> {
        if name == "store" { Ok(Self::Store) } else { Err(only("coordinator", "store only", name)) }
    }
}

fn only(port: &str, known: &str, asked: &str) -> String {
    match split_scheme(asked) {
        Some((scheme, _)) => format!("this build knows the {port} {known}; {scheme}:// is not supported yet"),
        None => format!("this build knows the {port} {known}"),
    }
}
