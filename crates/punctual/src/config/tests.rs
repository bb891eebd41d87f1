//! Tests of the default file, of the layers, and of the faults.

use std::path::Path;

use punctual_api::server::tls::ClientAuth;
use punctual_core::breakers::window::BreakerRules;
use punctual_core::retry::RetryPolicy;

use super::*;

/// The configuration from a file's text, an environment and flags, as the command line loads it.
fn load(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("punctual.toml");
    std::fs::write(&path, file).unwrap();
    let mut settings = RawSettings::defaults();
    let mut faults = SettingFaults::default();
    settings.apply_file(&path, &mut faults);
    let variables = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    settings.apply_environment(variables, &mut faults);
    for (flag, text) in flags {
        settings.apply_text(&flag[2..], text, SettingOrigin::Flag(flag), &mut faults);
    }
    settings.narrow_defaults();
    let place = format!("{}/", directory.path().display());
    Config::new(&settings, faults).map_err(|faults| faults.to_string().replace(&place, ""))
}

#[test]
fn the_default_file_is_complete_and_within_its_bounds() {
    let config = load("", &[], &[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7400");
    assert_eq!(config.data, Path::new("./punctual-data"));
    assert_eq!(config.roles, [Role::Api, Role::Scheduler, Role::Worker, Role::Leader].into());
    assert_eq!(config.tasks.retry_policy, RetryPolicy::default());
    assert_eq!(config.limits.payload_bytes, 256 * 1_024);
    assert_eq!(config.shutdown.drain, Duration::from_secs(25));
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn every_key_of_the_default_file_is_read() {
    // A value that only these two settings accept, so that reading the key is a fault.
    for (key, _) in RawSettings::defaults().iter() {
        let mut settings = RawSettings::defaults();
        let mut faults = SettingFaults::default();
        settings.apply_text(key, "-1", SettingOrigin::Flag("--test"), &mut faults);
        if !["data", "log.level"].contains(&key) {
            let faults = Config::new(&settings, faults).expect_err(key).to_string();
            assert!(faults.starts_with(key), "{key}: {faults}");
        }
    }
}

#[test]
fn flags_win_over_environment_over_file_over_default() {
    let file = "listen = '127.0.0.1:1'\ndata = 'file'\n[webhooks]\nper_target = 1\nconnect_timeout_seconds = 0.25";
    let environment = [("PUNCTUAL_LISTEN", "127.0.0.1:2"), ("PUNCTUAL_WEBHOOKS__PER_TARGET", "2"), ("OTHER", "x")];
    let config = load(file, &environment, &[("--listen", "127.0.0.1:3")]).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.webhooks.per_target, 2);
    assert_eq!(config.data, Path::new("file"));
    assert_eq!(config.webhooks.connect_timeout, Duration::from_millis(250));
    assert_eq!(config.webhooks.concurrency, 1_024);
}

#[test]
fn lists_come_with_commas() {
    let networks = [("PUNCTUAL_WEBHOOKS__ALLOW_NETWORKS", "10.0.0.0/8, fd00::/8")];
    let config = load("", &networks, &[("--roles", "api,leader")]).unwrap();
    assert_eq!(config.roles, [Role::Api, Role::Leader].into());
    let allows = |address: &str| !config.webhooks.networks.forbids(address.parse().unwrap());
    assert!(["10.1.2.3", "fd00::1"].into_iter().all(allows));
    assert!(!allows("192.168.0.1"));
}

#[test]
fn loopback_is_allowed_by_default_for_the_embedded_store_only() {
    let postgres = ("--store", "postgres://punctual@db.example/punctual");
    let listed = ("PUNCTUAL_WEBHOOKS__ALLOW_NETWORKS", "10.0.0.0/8");
    let asked = ("PUNCTUAL_WEBHOOKS__ALLOW_NETWORKS", "127.0.0.0/8,::1");
    let denied = ("PUNCTUAL_WEBHOOKS__DENY_NETWORKS", "127.0.0.0/8, ::1, 9.9.9.0/24");
    let nothing = ("PUNCTUAL_WEBHOOKS__ALLOW_NETWORKS", "");
    let guarded = ("PUNCTUAL_AUTH__ENABLED", "true");
    for (environment, flags, allowed) in [
        (&[][..], &[][..], true),
        (&[], &[postgres], false),
        (&[asked], &[postgres], true),
        (&[listed], &[], false),
        (&[nothing], &[], false),
        (&[denied], &[], false),
        (&[guarded], &[], false),
    ] {
        let networks = load("", environment, flags).unwrap().webhooks.networks;
        for address in ["127.0.0.1", "::1"] {
            assert_eq!(networks.forbids(address.parse().unwrap()), !allowed, "{address} {environment:?} {flags:?}");
        }
        let is_denied = environment == [denied];
        assert_eq!(networks.forbids("9.9.9.9".parse().unwrap()), is_denied);
    }
}

#[test]
fn other_addresses_need_authentication() {
    let listen = ("--listen", "0.0.0.0:7400");
    assert!(load("", &[], &[listen]).unwrap_err().contains("set auth.enabled = true"));
    let config = load("[auth]\nenabled = true", &[], &[listen]).unwrap();
    assert_eq!((config.listen.port(), config.auth.enabled, config.auth.signed_requests), (7_400, true, false));
}

#[test]
fn all_faults_are_reported_at_once() {
    let file =
        "listne = 'x'\nroles = 3\n[limits]\npayload_bytes = 0\nbatch_tasks = 'many'\n[limts]\n[tasks]\njitter = 'some'";
    let environment = [("PUNCTUAL_SHUTDOWN__DRAIN_SECONDS", "soon"), ("PUNCTUAL_WEBHOOKS", "none")];
    let flags = [("--store", "mysql://user:secret@host/db"), ("--listen", "0.0.0.0:80"), ("--roles", "api,dashboard")];
    let expected = r#"the configuration has 11 faults:
  limits.batch_tasks = "many" in punctual.toml: must be a whole number
  limits.payload_bytes = 0 in punctual.toml: must be between 1 and 16777216
  limts in punctual.toml: unknown key; did you mean limits?
  listen = "0.0.0.0:80" from --listen: authentication is not configured, so only a loopback address such as 127.0.0.1:7400 is accepted; set auth.enabled = true for others
  listne in punctual.toml: unknown key; did you mean listen?
  roles = 3 in punctual.toml: must be a list of strings
  roles = ["api", "dashboard"] from --roles: there is no dashboard in this version; leave that role out
  shutdown.drain_seconds = "soon" from PUNCTUAL_SHUTDOWN__DRAIN_SECONDS: must be a number of seconds
  store = "mysql://…" from --store: this build knows the stores sqlite and postgres://; mysql:// is not supported yet
  tasks.jitter = "some" in punctual.toml: must be "none" or "full"
  webhooks from PUNCTUAL_WEBHOOKS: is a section; name one of its keys, such as webhooks.allow_networks"#;
    let error = load(file, &environment, &flags).unwrap_err();
    let (head, faults) = error.split_once('\n').unwrap();
    let mut faults: Vec<&str> = faults.lines().collect();
    faults.sort_unstable();
    assert_eq!(format!("{head}\n{}", faults.join("\n")), expected);
}

#[test]
fn one_fault_is_one_sentence() {
    for (flag, text, sentence) in [
        ("--listen", "localhost:7400", "must be an IP address and a port, such as 127.0.0.1:7400"),
        (
            "--listen",
            "[::]:7400",
            "authentication is not configured, so only a loopback address such as 127.0.0.1:7400 is accepted; set \
             auth.enabled = true for others",
        ),
        ("--broker", "amqp://host", "this build knows the broker embedded only; amqp:// is not supported yet"),
        ("--coordinator", "etcd", "this build knows the coordinator store only"),
        ("--roles", "", "must name at least one role"),
        ("--roles", "api,worker", "with the embedded broker a node has both scheduler and worker, or neither"),
        (
            "--roles",
            "api,scheduler,leader",
            "with the embedded broker a node has both scheduler and worker, or neither",
        ),
        ("--roles", "cook", r#""cook" is not a role; there are api, scheduler, worker and leader"#),
        ("--data", "", "must be the path of a directory"),
        ("--read_store", "postgres://replica/db", "needs a PostgreSQL store; leave it out with sqlite"),
        (
            "--read_store",
            "sqlite",
            "must be the address of a standby of the store, such as postgres://punctual@replica.example/punctual",
        ),
        (
            "--name",
            "a b",
            "must be up to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or digit",
        ),
    ] {
        let error = load("", &[], &[(flag, text)]).unwrap_err();
        assert!(error.ends_with(sentence) && error.contains(&format!("from {flag}: ")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_value_that_may_hold_a_password_is_not_shown() {
    for flag in ["--store", "--read_store", "--broker", "--coordinator"] {
        for text in ["punc:hunter2@h/d", "host=h password=hunter2", "a:hunter2@h/postgres://x", "mysql://a:hunter2@h"] {
            let error = load("", &[], &[(flag, text)]).unwrap_err();
            assert!(error.contains(&format!("…\" from {flag}: ")) && !error.contains("hunter2"), "{error}");
        }
    }
    let error = load("store = ['postgres://punc:hunter2@h/d']", &[], &[]).unwrap_err();
    assert_eq!(error, "store = \"…\" in punctual.toml: must be a string");
}

#[test]
fn only_similar_keys_are_suggested() {
    for (name, advice) in [
        ("PUNCTUAL_FOO", "foo from PUNCTUAL_FOO: unknown key; `punctual config --default` lists all keys"),
        ("PUNCTUAL_LISTNE", "listne from PUNCTUAL_LISTNE: unknown key; did you mean listen?"),
        ("PUNCTUAL_LOGS", "logs from PUNCTUAL_LOGS: unknown key; did you mean log?"),
    ] {
        assert_eq!(load("", &[(name, "x")], &[]).unwrap_err(), advice);
    }
}

#[test]
fn breakers_are_within_their_bounds() {
    let error =
        load("[breakers]\nenabled = 'yes'\nwindow_seconds = 4\nfailure_percent = 100\nprobe_seconds = 0", &[], &[]);
    let mut faults: Vec<String> = error.unwrap_err().lines().skip(1).map(|line| line.trim().to_owned()).collect();
    faults.sort_unstable();
    let expected = [
        "breakers.enabled = \"yes\" in punctual.toml: must be true or false",
        "breakers.failure_percent = 100 in punctual.toml: must be between 1 and 99",
        "breakers.probe_seconds = 0 in punctual.toml: must be between 1 and 86400 seconds",
        "breakers.window_seconds = 4 in punctual.toml: must be between 5 and 86400 seconds",
    ];
    assert_eq!(faults, expected);
    assert!(!load("", &[("PUNCTUAL_BREAKERS__ENABLED", "false")], &[]).unwrap().breakers.enabled);
    let breakers = load("", &[], &[]).unwrap().breakers;
    let rules = BreakerRules { window_millis: 300_000, minimum: 20, failure_percent: 90 };
    assert_eq!((breakers.enabled, breakers.rules(), breakers.probe_millis()), (true, rules, 60_000));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (file, key) in [
        ("[limits]\nbody_bytes = 2048", "limits.body_bytes"),
        ("[limits]\nbatch_bytes = 2048", "limits.batch_bytes"),
        ("[tasks]\nmax_backoff_seconds = 1", "tasks.max_backoff_seconds"),
        ("[scheduler]\nsweep_interval_seconds = 31", "scheduler.sweep_interval_seconds"),
        ("[webhooks]\nconcurrency = 63", "webhooks.per_target"),
        ("[leases]\nmax_seconds = 59", "leases.max_seconds"),
        ("[leader]\nrenewal_seconds = 11", "leader.renewal_seconds"),
        ("[tls]\ncert_file = 'node.crt'", "tls.cert_file"),
        ("[tls]\nkey_file = 'node.key'", "tls.key_file"),
        ("[tls]\nclient_ca_file = 'roots.crt'", "tls.client_ca_file"),
        ("[tls]\ncert_file = 'a'\nkey_file = 'b'\nclient_auth = 'optional'", "tls.client_auth"),
        ("[tls]\nclient_ca_file = 'roots.crt'\nclient_auth = 'required'", "tls.client_auth"),
        ("[admin]\nlisten = '127.0.0.1:7400'", "admin.listen"),
        ("[admin]\nlisten = '0.0.0.0:7401'", "admin.listen"),
    ] {
        let error = load(file, &[], &[]).unwrap_err();
        assert!(error.starts_with(&format!("{key} = ")) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn the_listeners_are_as_they_are_set() {
    let defaults = load("", &[], &[]).unwrap();
    assert_eq!((defaults.tls, defaults.admin_listen), (None, None));
    let file = "[tls]\ncert_file = 'a'\nkey_file = 'b'\nclient_auth = 'required'\nclient_ca_file = 'c'\n\
                [admin]\nlisten = '127.0.0.1:7401'";
    let config = load(file, &[], &[]).unwrap();
    assert_eq!(config.admin_listen.map(|admin| admin.port()), Some(7401));
    let (cert, key, client_ca) = ("a".into(), "b".into(), Some("c".into()));
    assert_eq!(config.tls, Some(TlsFiles { cert, key, client_ca, client_auth: ClientAuth::Required }));
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_its_line() {
    let error = load("listen = '127.0.0.1:1'\ndata = ", &[], &[]).unwrap_err();
    assert!(error.starts_with("punctual.toml is not TOML: line 2: "), "{error}");
    let mut faults = SettingFaults::default();
    RawSettings::defaults().apply_file(Path::new("missing.toml"), &mut faults);
    assert!(faults.to_string().starts_with("cannot read missing.toml: "), "{faults}");
}

#[test]
fn variables_of_kubernetes_are_not_settings() {
    let environment = [
        ("PUNCTUAL_PORT", "tcp://10.0.0.1:7400"),
        ("PUNCTUAL_PORT_7400_TCP_ADDR", "10.0.0.1"),
        ("PUNCTUAL_SERVICE_HOST", "10.0.0.1"),
        ("PUNCTUAL_CONFIG", "punctual.toml"),
    ];
    assert!(load("", &environment, &[]).is_ok());
    assert!(load("", &[("PUNCTUAL_PORTS", "1")], &[]).is_err());
}

#[test]
fn the_printed_settings_can_be_read_again() {
    let mut settings = RawSettings::defaults();
    let mut faults = SettingFaults::default();
    settings.apply_text(
        "webhooks.per_target",
        "7",
        SettingOrigin::Environment("PUNCTUAL_WEBHOOKS__PER_TARGET".into()),
        &mut faults,
    );
    let shown = settings.to_string();
    assert!(shown.contains("per_target = 7 # from PUNCTUAL_WEBHOOKS__PER_TARGET\n"), "{shown}");
    assert_eq!(load(&shown, &[], &[]).unwrap().webhooks.per_target, 7);
}
