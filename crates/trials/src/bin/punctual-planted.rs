//! The product with a planted bug, for the trials' own tests: `TRIALS_PLANTED_BUG=sweep-off
//! punctual-planted serve`. Without that variable it is the unchanged product.

use std::process::ExitCode;

fn main() -> ExitCode {
    punctual::cli::main(punctual_trials::planted::from_environment)
}
