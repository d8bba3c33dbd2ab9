//! Micro benches of single parts, one module each; whole-system load is `snowskin bench`.
//!
//! Owns: measuring, and the table or JSON that comes of it. Must never: be depended on, or keep a
//! result that was not measured in this run. To add a bench, write a module with a `run` and name
//! it in [`Bench`]; start reading there.
#![forbid(unsafe_code)]

mod arena;
mod checksum;
mod copying;
mod loopback;
mod raw_socket;
mod regions;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures single parts of Snowskin.
#[derive(Parser)]
#[command(name = "snowskin-bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// Prints one JSON object instead of a table.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Bench {
    /// How full the extent arena gets on four mixes of sizes; fails below 95 %.
    Arena(arena::Options),
    /// Copies: the compiler's against streaming stores, by length.
    Copy(copying::Options),
    /// CRC-64/NVME, by length.
    Crc(checksum::Options),
    /// Gets and puts of two processes over loopback TCP, beside a raw socket and a copy.
    Loopback(loopback::Options),
    /// Addresses to scatter lists; fails above 200 ns per run.
    Regions(regions::Options),
    /// The other process of the raw socket probe.
    #[command(hide = true)]
    RawServer,
}

/// Whether a bench met what it promises.
enum Outcome {
    Met,
    Missed,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.bench {
        Bench::Arena(options) => arena::run(options, arguments.json),
        Bench::Copy(options) => copying::run(options, arguments.json),
        Bench::Crc(options) => checksum::run(options, arguments.json),
        Bench::Loopback(options) => loopback::run(options, arguments.json),
        Bench::Regions(options) => regions::run(options, arguments.json),
        Bench::RawServer => raw_socket::serve().map(|()| Outcome::Met),
    };
    match result {
        Ok(Outcome::Met) => ExitCode::SUCCESS,
        Ok(Outcome::Missed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
