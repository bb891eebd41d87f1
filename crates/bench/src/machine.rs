//! The machine a figure was made on, in one line.

use std::fs::read_to_string;

/// Processor, memory and kernel, as far as they are known.
pub fn describe() -> String {
    let value = |file: &str, field: &str| {
        let text = read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let processor = value("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let gigabytes = value("/proc/meminfo", "MemTotal:")
        .and_then(|total| total.trim_end_matches(" kB").parse::<u64>().ok())
        .map(|kilobytes| format!(", {} GB", kilobytes.div_ceil(1 << 20)))
        .unwrap_or_default();
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processor}{gigabytes}, {} {}", std::env::consts::OS, kernel.trim())
}
