//! Gets and puts of two processes over loopback TCP, beside a raw socket and a copy in the same run.
//!
//! The three take turns within a round, so that a slow spell of the machine hits them alike; the
//! medians of the rounds' ratios are what counts. The pool is a real one: a master and a node,
//! started from the built `snowskin` beside this program.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use snowskin_client::{
    Client, Config, GetItem, GetOptions, Leases, PutOptions, RemoveManyOptions, Source, Stored,
    Target,
};
use snowskin_types::call::Filter;

use crate::Outcome;
use crate::raw_socket;
use crate::report::{length_name, median, print_json, print_table};

/// Bytes that a client reads into.
const TARGET: usize = 256 << 20;
/// Bytes that objects of one size take in the pool.
const STORED: usize = 512 << 20;
/// Objects of one size, at the most.
const OBJECTS_MAX: usize = 16_384;
/// Size and batch of each row.
const ROWS: [(usize, usize); 6] = [
    (64 << 10, 1),
    (64 << 10, 32),
    (1 << 20, 1),
    (1 << 20, 32),
    (16 << 20, 1),
    (16 << 20, 8),
];

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Rounds; the first is dropped, the medians of the others are reported.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// MiB moved per row, kind and round.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(16..=65536))]
    mib: u32,
    /// The built program [default: the one beside this program].
    #[arg(long)]
    snowskin: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    bytes: usize,
    batch: usize,
    memcpy_gbps: f64,
    raw_gbps: f64,
    get_gbps: f64,
    put_gbps: f64,
    get_p50_us: f64,
    get_over_raw: f64,
    get_over_memcpy: f64,
    put_over_memcpy: f64,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    rounds: u32,
    mib: u32,
    rows: Vec<Row>,
}

/// A pool of other processes; ends with this value.
struct Pool {
    child: Child,
    master: String,
}

impl Pool {
    fn start(program: Option<&PathBuf>) -> Result<Self, Box<dyn Error>> {
        let program = match program {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("snowskin"),
        };
        let mut child = Command::new(&program)
            .args(["up", "--nodes", "1", "--segment-size", "3GiB"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{} could not be started: {e}", program.display()))?;
        let out = child.stdout.take().ok_or("the pool has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let master = ready["rpc"]
            .as_str()
            .ok_or("the ready line has no rpc")?
            .to_owned();
        Ok(Pool { child, master })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SIGTERM, so that the pool ends its own processes.
        if let Some(pid) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
        self.child.wait().ok();
    }
}

fn key(size: usize, id: usize) -> Vec<u8> {
    format!("bench/{size}/{id:08}").into_bytes()
}

struct Bench {
    client: Client,
    raw: raw_socket::Server,
    source: Vec<u8>,
    target: Vec<u8>,
}

fn gbps(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9
}

impl Bench {
    fn objects(size: usize) -> usize {
        (STORED / size).min(OBJECTS_MAX)
    }

    fn copy(&mut self, size: usize, total: usize) -> f64 {
        let start = Instant::now();
        for n in 0..total / size {
            let from = n * size % (self.source.len() - size + 1);
            let to = n * size % (self.target.len() - size + 1);
            self.target[to..to + size].copy_from_slice(&self.source[from..from + size]);
        }
        gbps(total / size * size, start.elapsed())
    }

    fn raw(&mut self, size: usize, batch: usize, total: usize) -> Result<f64, Box<dyn Error>> {
        let mut connections = self.raw.connect(1)?;
        let count = total / size;
        let time = raw_socket::read(&mut connections, size, count, batch, &mut self.target)?;
        Ok(gbps(count * size, time))
    }

    /// Gets of keys in order; the speed and the median time of a call in microseconds.
    fn get(
        &mut self,
        size: usize,
        batch: usize,
        total: usize,
    ) -> Result<(f64, f64), Box<dyn Error>> {
        let objects = Self::objects(size);
        let (mut next, mut moved, mut times) = (0, 0, Vec::new());
        let start = Instant::now();
        while moved < total {
            let keys: Vec<Vec<u8>> = (next..next + batch)
                .map(|n| key(size, n % objects))
                .collect();
            let at = next * size % (self.target.len() - batch * size + 1);
            let room = &mut self.target[at..at + batch * size];
            let mut items: Vec<GetItem<'_>> = keys
                .iter()
                .zip(room.chunks_mut(size))
                .map(|(k, room)| GetItem::whole(k, Target::Bytes(room)))
                .collect();
            let call = Instant::now();
            for got in self.client.get_items(&mut items, &GetOptions::default()) {
                moved += usize::try_from(got?.len)?;
            }
            times.push(call.elapsed().as_secs_f64() * 1e6);
            next += batch;
        }
        Ok((gbps(moved, start.elapsed()), median(times)))
    }

    /// Puts of fresh keys, removed afterwards.
    fn put(&mut self, size: usize, batch: usize, total: usize) -> Result<f64, Box<dyn Error>> {
        let count = (total / size).min(OBJECTS_MAX) / batch.max(1) * batch;
        let start = Instant::now();
        let mut next = 0;
        while next < count {
            let keys: Vec<String> = (next..next + batch)
                .map(|n| format!("put/{size}/{n}"))
                .collect();
            let items: Vec<(&str, Source<'_>)> = keys
                .iter()
                .enumerate()
                .map(|(n, k)| {
                    let at = (next + n) * size % (self.source.len() - size + 1);
                    (k.as_str(), Source::Bytes(&self.source[at..at + size]))
                })
                .collect();
            for stored in self.client.put_batch(&items, &PutOptions::default()) {
                if !matches!(stored?, Stored::Written { .. }) {
                    return Err("a fresh key was taken".into());
                }
            }
            next += batch;
        }
        let speed = gbps(count * size, start.elapsed());
        let options = RemoveManyOptions {
            leases: Leases::Override,
            ..RemoveManyOptions::default()
        };
        self.client
            .remove_many(&Filter::Prefix(b"put/".to_vec()), &options)?;
        Ok(speed)
    }

    fn fill(&self, size: usize) -> Result<(), Box<dyn Error>> {
        for id in 0..Self::objects(size) {
            let at = id * 4096 % (self.source.len() - size + 1);
            self.client.put(
                key(size, id),
                &self.source[at..at + size],
                &PutOptions::default(),
            )?;
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Box<dyn Error>> {
        let options = RemoveManyOptions {
            leases: Leases::Override,
            ..RemoveManyOptions::default()
        };
        self.client.remove_many(&Filter::All, &options)?;
        Ok(())
    }
}

/// Runs all rows.
pub(crate) fn run(options: &Options, json: bool) -> Result<Outcome, Box<dyn Error>> {
    let pool = Pool::start(options.snowskin.as_ref())?;
    let client = Client::connect(&Config::new(pool.master.clone()))?;
    let source = (0..TARGET).map(|i| ((i * 131) >> 5) as u8).collect();
    let mut bench = Bench {
        client,
        raw: raw_socket::Server::start()?,
        source,
        target: vec![1; TARGET],
    };
    let total = usize::try_from(options.mib)? << 20;
    let mut rows = Vec::new();
    for (size, batch) in ROWS {
        bench.fill(size)?;
        let mut samples: Vec<[f64; 5]> = Vec::new();
        for _ in 0..options.rounds {
            let copy = bench.copy(size, total);
            let raw = bench.raw(size, batch, total)?;
            let (get, p50) = bench.get(size, batch, total)?;
            let put = bench.put(size, batch, total)?;
            samples.push([copy, raw, get, put, p50]);
        }
        bench.clear()?;
        samples.remove(0);
        let middle = |pick: &dyn Fn(&[f64; 5]) -> f64| median(samples.iter().map(pick).collect());
        rows.push(Row {
            bytes: size,
            batch,
            memcpy_gbps: middle(&|s| s[0]),
            raw_gbps: middle(&|s| s[1]),
            get_gbps: middle(&|s| s[2]),
            put_gbps: middle(&|s| s[3]),
            get_p50_us: middle(&|s| s[4]),
            get_over_raw: middle(&|s| s[2] / s[1]),
            get_over_memcpy: middle(&|s| s[2] / s[0]),
            put_over_memcpy: middle(&|s| s[3] / s[0]),
        });
    }
    bench.client.close()?;
    let report = Report {
        schema: "snowskin.loopback/1",
        rounds: options.rounds - 1,
        mib: options.mib,
        rows,
    };
    if json {
        print_json(&report)?;
        return Ok(Outcome::Met);
    }
    let head = [
        "object",
        "batch",
        "memcpy GB/s",
        "raw GB/s",
        "get GB/s",
        "get/raw",
        "get/memcpy",
        "p50 us",
        "put GB/s",
        "put/memcpy",
    ];
    let cells: Vec<Vec<String>> = report
        .rows
        .iter()
        .map(|r| {
            vec![
                length_name(r.bytes),
                r.batch.to_string(),
                format!("{:.2}", r.memcpy_gbps),
                format!("{:.2}", r.raw_gbps),
                format!("{:.2}", r.get_gbps),
                format!("{:.2}", r.get_over_raw),
                format!("{:.2}", r.get_over_memcpy),
                format!("{:.0}", r.get_p50_us),
                format!("{:.2}", r.put_gbps),
                format!("{:.2}", r.put_over_memcpy),
            ]
        })
        .collect();
    print_table(&head, &cells)?;
    Ok(Outcome::Met)
}
