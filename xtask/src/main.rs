//! Chores of the project: `cargo xtask test | verify | fix | tidy | python | wheel | sim | soak | compat | clients`.
//!
//! Owns: how the tree is checked and its tests are run. Must never: be depended on.
//! Start reading at [`test`].
#![forbid(unsafe_code)]

mod clients;
mod compat;
mod errors_page;
mod graph;
mod python;
mod soak;
mod steps;
mod test;
mod tidy;
mod wheel;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the project")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Sets up what is needed and runs all tests
    Test {
        /// Only the quick ones: no end-to-end tests, no release build
        #[arg(long)]
        quick: bool,
    },
    /// Checks formatting, lints and the rules of the tree; writes nothing
    Verify,
    /// Formats and writes generated pages
    Fix,
    /// Checks the rules of the tree: crate graph, limits, headers, generated pages
    Tidy,
    /// Runs the simulator: its own options follow (`--seed N`, `--seconds S`, `meta`, `bugs`, ...)
    Sim {
        /// Options of the simulator
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Builds the Python packages from the release profile and runs their tests in target/venv
    Python,
    /// Builds the wheels that are given to others into target/wheels, and checks them
    Wheel,
    /// Compares our Python package with the released one: interface and answers, row by row
    Compat {
        /// Requirement or wheel file of the released package
        #[arg(long, default_value = "mooncake-transfer-engine-non-cuda")]
        package: String,
        /// Leave our own package out
        #[arg(long)]
        peer_only: bool,
    },
    /// Runs the consumers' released classes (vLLM, SGLang, LMCache, ...) against our wheels and servers
    Clients(clients::Options),
    /// Runs the long checks and prints a row for docs/proof.md
    Soak {
        /// Minutes in all
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().chore {
        Chore::Test { quick } => test::run(quick),
        Chore::Verify => test::verify(),
        Chore::Fix => test::fix(),
        Chore::Tidy => tidy::run(),
        Chore::Python => test::python(),
        Chore::Wheel => wheel::run(),
        Chore::Sim { options } => test::sim(&options),
        Chore::Compat { package, peer_only } => compat::run(&package, peer_only),
        Chore::Clients(options) => clients::run(&options),
        Chore::Soak { minutes } => soak::run(minutes),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
