//! `punctual config`: what is set, and where it was set.

use std::io::Write;

use clap::Args;

use super::flags::Flags;
use crate::config::DEFAULT_FILE;

/// What `punctual config` takes.
#[derive(Args)]
pub struct Arguments {
    /// Print the default file with its comments instead.
    #[arg(long)]
    default: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Prints the settings on stdout.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let text = if arguments.default { DEFAULT_FILE.to_owned() } else { arguments.flags.load()?.0.to_string() };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
