//! Copies by length: the compiler's copy against streaming stores.
//!
//! Source and target move through areas larger than the caches, as bulk reads of a segment do. The
//! kernels take turns within a round, so that a slow spell of the machine hits them alike.

use std::error::Error;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use snowskin_memory::buffer::Buffer;
use snowskin_memory::copy::{self, Kernel};

use crate::Outcome;
use crate::report::{length_name, median, print_json, print_table};

const LENGTHS: [usize; 7] = [
    4 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];
const PAGE: usize = 4096;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds per length; the medians are reported.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// MiB copied per length, kernel and round.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=65536))]
    mib: u32,
    /// MiB of the source area and of the target area each.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=65536))]
    area_mib: u32,
}

#[derive(Serialize)]
struct Speed {
    kernel: &'static str,
    gbps: f64,
}

#[derive(Serialize)]
struct Row {
    bytes: usize,
    speeds: Vec<Speed>,
    /// The way that `copy` picks by itself at this length.
    chosen_gbps: f64,
    /// Chosen over plain, median of the rounds' ratios.
    chosen_over_plain: f64,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    stream_bytes_min: usize,
    rows: Vec<Row>,
}

/// A kernel by name, or the choice that the product makes.
#[derive(Clone, Copy)]
enum Way {
    Given(Kernel),
    Chosen,
}

fn measure(way: Way, len: usize, total: usize, source: &[u8], target: &mut [u8]) -> f64 {
    let places = source.len() / len;
    let count = (total / len).max(1);
    let start = Instant::now();
    for nth in 0..count {
        let at = nth % places * len;
        let (from, to) = (&source[at..at + len], &mut target[at..at + len]);
        match way {
            Way::Given(kernel) => copy::copy_with(kernel, from, to),
            Way::Chosen => copy::copy(from, to),
        };
    }
    (count * len) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn row(len: usize, options: &Options, source: &[u8], target: &mut [u8]) -> Row {
    let total = options.mib as usize * (1 << 20);
    let kernels: Vec<Kernel> = Kernel::all()
        .into_iter()
        .filter(Kernel::is_available)
        .collect();
    let mut speeds = vec![Vec::new(); kernels.len()];
    let (mut chosen, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let mut plain = f64::NAN;
        for (kernel, speeds) in kernels.iter().zip(&mut speeds) {
            let speed = measure(Way::Given(*kernel), len, total, source, target);
            speeds.push(speed);
            if *kernel == Kernel::Plain {
                plain = speed;
            }
        }
        let speed = measure(Way::Chosen, len, total, source, target);
        chosen.push(speed);
        ratios.push(speed / plain);
    }
    let speeds = kernels.iter().zip(speeds);
    Row {
        bytes: len,
        speeds: speeds
            .map(|(kernel, of)| Speed {
                kernel: kernel.name(),
                gbps: median(of),
            })
            .collect(),
        chosen_gbps: median(chosen),
        chosen_over_plain: median(ratios),
    }
}

/// Runs all lengths.
pub(crate) fn run(options: &Options, json: bool) -> Result<Outcome, Box<dyn Error>> {
    let area = options.area_mib as usize * (1 << 20);
    let mut source = Buffer::zeroed(area, PAGE)?;
    let mut target = Buffer::zeroed(area, PAGE)?;
    // Both are touched first, so that no page fault is measured.
    source.fill(1);
    target.fill(2);
    let rows = LENGTHS
        .iter()
        .map(|len| row(*len, options, &source, &mut target))
        .collect();
    let report = Report {
        schema: "snowskin.bench-copy/1",
        stream_bytes_min: copy::STREAM_BYTES_MIN,
        rows,
    };
    if json {
        print_json(&report)?;
        return Ok(Outcome::Met);
    }
    let mut head = vec!["length"];
    head.extend(
        report
            .rows
            .iter()
            .take(1)
            .flat_map(|row| &row.speeds)
            .map(|speed| speed.kernel),
    );
    head.extend(["chosen", "chosen / plain"]);
    let cells = |row: &Row| {
        let mut cells = vec![length_name(row.bytes)];
        cells.extend(row.speeds.iter().map(|speed| format!("{:.1}", speed.gbps)));
        cells.push(format!("{:.1}", row.chosen_gbps));
        cells.push(format!("{:.2}", row.chosen_over_plain));
        cells
    };
    print_table(&head, &report.rows.iter().map(cells).collect::<Vec<_>>())?;
    println!("GB/s");
    Ok(Outcome::Met)
}
