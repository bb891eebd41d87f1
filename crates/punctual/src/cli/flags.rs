//! The flags that change settings, shared by the commands that need settings.

use std::path::PathBuf;

use clap::{Arg, Args};

use crate::config::{Config, RawSettings, SettingFaults, SettingOrigin};

/// They win over the environment, which wins over the file.
#[derive(Args)]
pub struct Flags {
    /// A file of settings over the defaults.
    #[arg(long, value_name = "FILE", env = "PUNCTUAL_CONFIG")]
    config: Option<PathBuf>,
    /// Where to listen; port 0 picks a free one [default: 127.0.0.1:7400].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The directory of the embedded store [default: ./punctual-data].
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Where tasks are kept: sqlite or postgres://… [default: sqlite].
    #[arg(long)]
    store: Option<String>,
    /// A standby of the store to read lists from: postgres://… [default: the store itself].
    #[arg(long, value_name = "URL")]
    read_store: Option<String>,
    /// What carries dispatched tasks to the webhook workers [default: embedded].
    #[arg(long)]
    broker: Option<String>,
    /// What elects the leader [default: store].
    #[arg(long)]
    coordinator: Option<String>,
    /// The roles of this process, separated by commas [default: api,scheduler,worker,leader].
    #[arg(long)]
    roles: Option<String>,
}

impl Flags {
    /// All settings in force, raw and typed.
    pub fn load(&self) -> Result<(RawSettings, Config), SettingFaults> {
        let mut settings = RawSettings::defaults();
        let mut faults = SettingFaults::default();
        if let Some(path) = &self.config {
            settings.apply_file(path, &mut faults);
        }
        // A name that is not Unicode is not a setting. A value that is not gets U+FFFD for the bad
        // bytes.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        settings.apply_environment(std::env::vars_os().filter_map(text), &mut faults);
        let flags = [
            ("listen", "--listen", &self.listen),
            ("data", "--data", &self.data),
            ("store", "--store", &self.store),
            ("read_store", "--read-store", &self.read_store),
            ("broker", "--broker", &self.broker),
            ("coordinator", "--coordinator", &self.coordinator),
            ("roles", "--roles", &self.roles),
        ];
        for (key, flag, given) in flags {
            if let Some(text) = given {
                settings.apply_text(key, text, SettingOrigin::Flag(flag), &mut faults);
            }
        }
        settings.narrow_defaults();
        let config = Config::new(&settings, faults)?;
        Ok((settings, config))
    }
}

/// Hides a flag from the help of commands that work on the store only, unless it is about the
/// store. Those commands still accept it, so that one set of flags serves all of them.
pub fn hide_unless_about_store(flag: Arg) -> Arg {
    let is_about_store = ["config", "data", "store", "to"].contains(&flag.get_id().as_str());
    flag.hide(!is_about_store)
}
