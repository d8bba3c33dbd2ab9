//! CRC-64/NVME by length: from the cache, from memory, and in the 256 KiB pieces of an object.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use snowskin_memory::buffer::Buffer;
use snowskin_types::checksum::{PieceSums, crc64};

use crate::Outcome;
use crate::report::{length_name, median, print_json, print_table};

const LENGTHS: [usize; 5] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20];
const PAGE: usize = 4096;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds per length; the medians are reported.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// MiB of memory that the cold case walks through.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=65536))]
    area_mib: u32,
}

#[derive(Serialize)]
struct Row {
    bytes: usize,
    /// The same bytes again and again.
    hot_gbps: f64,
    /// Bytes that were not touched for a while.
    cold_gbps: f64,
    /// Cold, one sum a piece and their combination.
    pieces_gbps: f64,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    rows: Vec<Row>,
}

fn speed(bytes: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    bytes as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn row(len: usize, options: &Options, area: &[u8]) -> Row {
    let (mut hot, mut cold, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
    let count = area.len() / len;
    for _ in 0..options.rounds {
        hot.push(speed(count * len, || {
            for _ in 0..count {
                black_box(crc64(black_box(&area[..len])));
            }
        }));
        cold.push(speed(count * len, || {
            for object in area.chunks_exact(len) {
                black_box(crc64(object));
            }
        }));
        pieces.push(speed(count * len, || {
            for object in area.chunks_exact(len) {
                black_box(PieceSums::of(object).whole(len as u64));
            }
        }));
    }
    Row {
        bytes: len,
        hot_gbps: median(hot),
        cold_gbps: median(cold),
        pieces_gbps: median(pieces),
    }
}

/// Runs all lengths.
pub(crate) fn run(options: &Options, json: bool) -> Result<Outcome, Box<dyn Error>> {
    let mut area = Buffer::zeroed(options.area_mib as usize * (1 << 20), PAGE)?;
    for (index, byte) in area.iter_mut().enumerate() {
        *byte = (index * 31 % 251) as u8;
    }
    let rows = LENGTHS
        .iter()
        .map(|len| row(*len, options, &area))
        .collect();
    let report = Report {
        schema: "snowskin.bench-crc/1",
        rows,
    };
    if json {
        print_json(&report)?;
        return Ok(Outcome::Met);
    }
    let cells = |row: &Row| {
        let speeds = [row.hot_gbps, row.cold_gbps, row.pieces_gbps];
        let speeds = speeds.iter().map(|speed| format!("{speed:.1}"));
        std::iter::once(length_name(row.bytes))
            .chain(speeds)
            .collect::<Vec<_>>()
    };
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    print_table(&["length", "hot", "cold", "cold, pieces"], &rows)?;
    println!("GB/s");
    Ok(Outcome::Met)
}
