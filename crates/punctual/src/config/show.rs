//! Prints the settings in force as TOML that `--config` accepts. A value that is not the default
//! has its origin beside it. Passwords in addresses are left out.

use std::fmt;

use super::secret::masked;
use super::settings::{RawSettings, Setting, SettingOrigin};

impl fmt::Display for RawSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys without a section come first: in TOML every key after a section's head belongs to
        // it.
        for (key, setting) in self.iter().filter(|(key, _)| !key.contains('.')) {
            line(f, key, setting)?;
        }
        let mut current = "";
        for (section, key, setting) in self.iter().filter_map(|(key, setting)| {
            let (section, key) = key.split_once('.')?;
            Some((section, key, setting))
        }) {
            if section != current {
                writeln!(f, "\n[{section}]")?;
                current = section;
            }
            line(f, key, setting)?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, key: &str, setting: &Setting) -> fmt::Result {
    let value = match setting.value.as_str() {
        Some(text) => masked(text).into(),
        None => setting.value.clone(),
    };
    match &setting.origin {
        SettingOrigin::Default => writeln!(f, "{key} = {value}"),
        origin => writeln!(f, "{key} = {value} # {origin}"),
    }
}
