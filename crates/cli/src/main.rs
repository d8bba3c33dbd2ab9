//! The `snowskin` command.
//!
//! Owns: options, exit codes, what is printed, workloads. Must never: decide anything of the protocol.
//! Start reading at [`launch`] (from words to a command), then `commands/`.
#![forbid(unsafe_code)]

#[macro_use]
mod say;

mod args;
mod commands;
mod exit;
mod launch;
mod options;
mod pool;
mod ready;
mod signals;
mod trace;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    launch::run(std::env::args_os().collect(), std::env::vars_os().collect())
}
