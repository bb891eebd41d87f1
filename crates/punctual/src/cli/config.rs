//! `punctual config`: prints every setting and where it was set.

use std::io::Write;

use clap::Args;

use super::flags::Flags;
use crate::config::DEFAULT_FILE;

/// The arguments of `punctual config`.
#[derive(Args)]
pub struct ConfigArguments {
    /// Print the default file with its comments instead.
    #[arg(long)]
    default: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Prints the settings on stdout.
pub fn run(arguments: &ConfigArguments) -> anyhow::Result<()> {
    let text = if arguments.default { DEFAULT_FILE.to_owned() } else { arguments.flags.load()?.0.to_string() };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
