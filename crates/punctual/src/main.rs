//! The program: see the library of the same name.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    punctual::cli::main(std::convert::identity)
}
