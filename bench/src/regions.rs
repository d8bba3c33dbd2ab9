//! From addresses to scatter lists: many objects, each a part of every region, as engines keep the
//! layers of a cache apart. No byte is moved.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use snowskin_device::{Config, Drivers, Gather, Registry, Run, Scatter};

use crate::Outcome;
use crate::report::{median, print_json, print_table};

/// Nanoseconds per run that a list may cost at most: 100,000 runs in 20 ms.
const RUN_NS_MAX: f64 = 200.0;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Objects of one round.
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    objects: u32,
    /// Regions, and runs of an object.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    regions: u32,
    /// Bytes of a run.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    run_bytes: u32,
    /// Rounds; the medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    runs: usize,
    /// Nanoseconds per run to list bytes to send, to lend the lists, and to drop them.
    gather_ns: f64,
    source_ns: f64,
    /// The same of room to receive, its end included.
    scatter_ns: f64,
    target_ns: f64,
}

/// Runs both directions; fails when a list is too slow to make.
pub(crate) fn run(options: &Options, json: bool) -> Result<Outcome, Box<dyn Error>> {
    let (objects, regions) = (options.objects as usize, options.regions as usize);
    let bytes = options.run_bytes as usize;
    // Zeroed memory of this size is only reserved; nothing touches it.
    let memory: Vec<Vec<u8>> = (0..regions).map(|_| vec![0; objects * bytes]).collect();
    let bases: Vec<usize> = memory
        .iter()
        .map(|region| region.as_ptr().expose_provenance())
        .collect();
    let registry = Registry::new(Config {
        strict: true,
        drivers: Drivers::none(),
        ..Config::default()
    });
    let len = (objects * bytes) as u64;
    let all: Vec<Run> = bases.iter().map(|&address| Run { address, len }).collect();
    registry.register_all(&all)?;
    // Blocks are handed out in no order.
    let objects: Vec<Vec<Run>> = (0..objects)
        .map(|nth| {
            let at = (nth * 7919 % objects) * bytes;
            let run = |base: &usize| Run {
                address: base + at,
                len: bytes as u64,
            };
            bases.iter().map(run).collect()
        })
        .collect();
    let runs = objects.len() * regions;
    let per_run = |start: Instant| start.elapsed().as_nanos() as f64 / runs as f64;
    let [mut gather, mut source, mut scatter, mut target] = [const { Vec::new() }; 4];
    for _ in 0..options.rounds {
        let start = Instant::now();
        let gathers: Result<Vec<Gather>, _> =
            objects.iter().map(|runs| registry.gather(runs)).collect();
        let gathers = gathers?;
        gather.push(per_run(start));
        let start = Instant::now();
        for gather in gathers {
            black_box(gather.scattered().source());
        }
        source.push(per_run(start));
        let start = Instant::now();
        let scatters: Result<Vec<Scatter>, _> =
            objects.iter().map(|runs| registry.scatter(runs)).collect();
        let scatters = scatters?;
        scatter.push(per_run(start));
        let start = Instant::now();
        for scatter in scatters {
            let len = scatter.scattered().len();
            black_box(scatter.scattered().target(len)?);
            scatter.finish(len)?;
        }
        target.push(per_run(start));
    }
    for base in bases {
        registry.unregister(base, std::time::Duration::ZERO)?;
    }
    let report = Report {
        schema: "snowskin.bench-regions/1",
        runs,
        gather_ns: median(gather),
        source_ns: median(source),
        scatter_ns: median(scatter),
        target_ns: median(target),
    };
    print(&report, json)?;
    let slow = report.gather_ns.max(report.scatter_ns) > RUN_NS_MAX;
    Ok(if slow { Outcome::Missed } else { Outcome::Met })
}

fn print(report: &Report, json: bool) -> std::io::Result<()> {
    if json {
        return print_json(report);
    }
    let row = |name: &str, ns: f64| {
        let whole = ns * report.runs as f64 / 1e6;
        vec![name.to_owned(), format!("{ns:.1}"), format!("{whole:.1}")]
    };
    let rows = [
        row("gather", report.gather_ns),
        row("lend, drop", report.source_ns),
        row("scatter", report.scatter_ns),
        row("lend, finish", report.target_ns),
    ];
    let whole = format!("ms for {}", report.runs);
    print_table(&["step", "ns per run", &whole], &rows)
}
