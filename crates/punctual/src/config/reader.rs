//! Turns settings into typed values, each within its bounds.
//!
//! Called by [`super::Config::new`]. A faulty value is recorded and its default used instead, so
//! that reading goes on and finds every fault.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::Value;

use super::fault::SettingFaults;
use super::settings::{RawSettings, Setting};

/// Reads settings and collects faults.
pub struct SettingReader<'a> {
    settings: &'a RawSettings,
    faults: &'a mut SettingFaults,
}

impl<'a> SettingReader<'a> {
    /// Reads `settings`, and adds their faults to `faults`.
    pub fn new(settings: &'a RawSettings, faults: &'a mut SettingFaults) -> Self {
        Self { settings, faults }
    }

    /// A whole number.
    pub fn number<T: TryFrom<i64>>(&mut self, key: &str, range: RangeInclusive<i64>) -> T {
        self.read(key, |value| {
            let number = value.as_integer().filter(|number| range.contains(number));
            let advice = || format!("must be between {} and {}", range.start(), range.end());
            number.and_then(|number| T::try_from(number).ok()).ok_or_else(advice)
        })
    }

    /// True or false.
    pub fn flag(&mut self, key: &str) -> bool {
        self.read(key, |value| value.as_bool().ok_or_else(|| "must be true or false".to_owned()))
    }

    /// A duration.
    pub fn seconds(&mut self, key: &str, range: RangeInclusive<Duration>) -> Duration {
        self.read(key, |value| {
            let duration = match value {
                Value::Integer(whole) => u64::try_from(*whole).ok().map(Duration::from_secs),
                other => other.as_float().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            };
            let advice = || {
                let (least, most) = (range.start().as_secs_f64(), range.end().as_secs_f64());
                format!("must be between {least} and {most} seconds")
            };
            duration.filter(|duration| range.contains(duration)).ok_or_else(advice)
        })
    }

    /// One of a few words.
    pub fn word<T: DeserializeOwned>(&mut self, key: &str, words: &str) -> T {
        self.read(key, |value| value.clone().try_into().map_err(|_| format!("must be {words}")))
    }

    /// A text that `parse` accepts.
    pub fn text<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.read(key, |value| parse(value.as_str().unwrap_or_default()))
    }

    /// A list of texts that `parse` accepts.
    pub fn list<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        self.read(key, |value| {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().map(|item| parse(item.as_str().ok_or("must be a list of strings")?)).collect()
        })
    }

    /// Records a fault of `key` unless `holds`: for rules about two settings.
    pub fn require(&mut self, key: &str, holds: bool, advice: &str) {
        if !holds {
            self.faults.value(key, self.settings.get(key), advice);
        }
    }

    fn read<T>(&mut self, key: &str, parse: impl Fn(&Value) -> Result<T, String>) -> T {
        let setting: &Setting = self.settings.get(key);
        parse(&setting.value).unwrap_or_else(|advice| {
            self.faults.value(key, setting, advice);
            parse(self.settings.default_of(key)).expect("invariant: a test reads every default")
        })
    }
}
