//! Which loops run on a node with which roles.

use std::convert::identity;

use punctual_core::ids::NodeId;
use tempfile::tempdir;

use super::*;
use crate::config::{Config, RawSettings, SettingFaults, SettingOrigin};

/// Starts a node with these roles on an empty embedded store, and returns the names of its loops.
async fn loops(roles: &str) -> Vec<&'static str> {
    crate::cli::install_tls();
    let home = tempdir().unwrap();
    let (mut settings, mut faults) = (RawSettings::defaults(), SettingFaults::default());
    settings.apply_text("data", home.path().to_str().unwrap(), SettingOrigin::Flag("--data"), &mut faults);
    settings.apply_text("roles", roles, SettingOrigin::Flag("--roles"), &mut faults);
    let config = Config::new(&settings, faults).unwrap();
    let parts = Arc::new(NodeParts::open(config, NodeId::random(), identity).await.unwrap());
    let main = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let running = Running::start(parts, Listeners { main, admin: None, tls: None }).await.unwrap();
    let names = running.groups.names();
    let stop = CancellationToken::new();
    stop.cancel();
    running.run_until(stop).await.unwrap();
    names
}

#[tokio::test]
async fn a_node_runs_the_loops_of_its_roles() {
    let every = ["queue watch", "tally", "breaker watch", "resolver", "membership"];
    for (roles, own) in [
        ("api", &["dispatcher", "api", "finish watch", "cluster watch", "presence"][..]),
        ("scheduler,worker", &["dispatcher", "partition owner", "worker", "operations"]),
        ("leader", &["operations", "leader"]),
        (
            "api,scheduler,worker,leader",
            &["dispatcher", "partition owner", "worker", "api", "finish watch", "cluster watch", "presence", "leader"],
        ),
    ] {
        let (mut ran, mut wanted) = (loops(roles).await, [&every, own].concat());
        ran.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(ran, wanted, "{roles}");
    }
}
