//! `snowskin bench`: measures a pool from one client process.

use crate::args::{BenchArgs, BenchOp, Common};
use crate::commands::connect::client;
use crate::exit::Ending;
use crate::workload::content::Content;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use snowskin_client::{
    CallOptions, Client, ExistsOptions, GetItem, GetOptions, Leases, Presence, PutOptions,
    RemoveManyOptions, Source, Stored, Target,
};
use snowskin_types::call::{Filter, NodeStat, NodeState};
use snowskin_types::error::{Code, Failure};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that reads and look-ups move through: larger than the caches.
const AREA: u64 = 256 << 20;
/// Most objects that are stored for reads and look-ups.
const OBJECTS_MAX: u64 = 100_000;
/// Objects stored per call while preparing.
const FILL_BATCH: u64 = 64;
/// How often the progress is drawn anew.
const TICK: Duration = Duration::from_millis(200);
/// Longest latency that is told apart, in microseconds.
const LATENCY_MAX_US: u64 = 120_000_000;

struct Job<'a> {
    client: &'a Client,
    args: &'a BenchArgs,
    content: &'a Content,
    prefix: &'a str,
    /// Objects stored for reads and look-ups.
    objects: u64,
    /// Next id of a fresh object.
    fresh: &'a AtomicU64,
    end: Instant,
}

#[derive(Default)]
struct Count {
    ops: u64,
    bytes: u64,
    wrong_bytes: u64,
    errors: BTreeMap<i32, u64>,
}

fn key(prefix: &str, id: u64) -> String {
    format!("{prefix}{id:016x}")
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanos)
}

/// Runs the command.
pub fn run(args: &BenchArgs, common: &Common) -> Result<(), Ending> {
    let size = usize::try_from(args.size)
        .ok()
        .filter(|s| *s > 0)
        .ok_or_else(|| Ending::Usage("--size is 0; allowed are 1 and more".into()))?;
    let client = client(&args.client, common)?;
    let prefix = format!("bench/{:016x}/", client.id().0);
    let stat = client.stat(&CallOptions::default())?;
    let room = room_for(args, &stat.nodes)?;
    let progress = progress(common);
    let content = Content::new(size);
    let fits = (room / 2 / args.size.next_multiple_of(4096)).max(1);
    let objects = (AREA / args.size)
        .clamp(u64::from(args.batch), OBJECTS_MAX)
        .min(fits);
    let fresh = AtomicU64::new(objects);
    if args.op != BenchOp::Put {
        progress.set_message("storing what is looked for");
        fill(&client, &content, &prefix, objects, size)?;
    }
    progress.set_message(format!("measuring for {:?}", args.seconds));
    let (cpu, start) = (cpu_time(), Instant::now());
    let end = start + args.seconds;
    let parts: Vec<Result<(Count, Histogram<u64>), Ending>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|index| {
                let job = Job {
                    client: &client,
                    args,
                    content: &content,
                    prefix: &prefix,
                    objects,
                    fresh: &fresh,
                    end,
                };
                scope.spawn(move || job.work(u64::from(index), size))
            })
            .collect();
        let ended = threads.into_iter().map(|t| match t.join() {
            Ok(part) => part,
            Err(_) => Err(Ending::Runtime("a bench thread panicked".into())),
        });
        ended.collect()
    });
    let (elapsed, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
    let mut all = Count::default();
    let mut latency = histogram()?;
    for part in parts {
        let (count, part) = part?;
        all.ops += count.ops;
        all.bytes += count.bytes;
        all.wrong_bytes += count.wrong_bytes;
        for (code, n) in count.errors {
            *all.errors.entry(code).or_default() += n;
        }
        latency
            .add(part)
            .map_err(|e| Ending::Runtime(e.to_string()))?;
    }
    progress.set_message("removing the objects");
    clean_up(&client, &prefix)?;
    progress.finish_and_clear();
    report(args, common, &all, &latency, elapsed, cpu);
    if all.wrong_bytes > 0 {
        let wrong = Ending::Integrity(format!("{} wrong bytes were read", all.wrong_bytes));
        // With `--json` the result has the number, and is the only object.
        return Err(match common.json {
            true => Ending::Printed(wrong.exit_code()),
            false => wrong,
        });
    }
    Ok(())
}

/// Bytes that the nodes that can be written to offer together.
///
/// # Errors
/// Nothing is there, or not even one call of this size could be.
fn room_for(args: &BenchArgs, nodes: &[NodeStat]) -> Result<u64, Ending> {
    let alive = nodes.iter().filter(|n| n.state == NodeState::Alive);
    let capacities: Vec<u64> = alive.map(|n| n.dram_capacity).collect();
    let room: u64 = capacities.iter().sum();
    let Some(largest) = capacities.into_iter().max() else {
        let nobody = "no node of the cluster is alive";
        return Err(Failure::new(Code::NoSpace, snowskin_types::Stage::Reserve, nobody).into());
    };
    if args.size > largest {
        return Err(Ending::Usage(format!(
            "--size is {} bytes; the largest segment has {largest}",
            args.size
        )));
    }
    if args.size.saturating_mul(u64::from(args.batch)) > room {
        return Err(Ending::Usage(format!(
            "--batch {} of --size {} bytes is more than the {room} bytes of all segments",
            args.batch, args.size
        )));
    }
    Ok(room)
}

/// What goes on, for somebody who looks at a terminal.
fn progress(common: &Common) -> ProgressBar {
    if common.json || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(TICK);
    bar
}

fn histogram() -> Result<Histogram<u64>, Ending> {
    Histogram::new_with_max(LATENCY_MAX_US, 3).map_err(|e| Ending::Runtime(e.to_string()))
}

fn fill(
    client: &Client,
    content: &Content,
    prefix: &str,
    objects: u64,
    size: usize,
) -> Result<(), Ending> {
    let mut id = 0;
    while id < objects {
        let ids: Vec<u64> = (id..objects.min(id + FILL_BATCH)).collect();
        let blocks: Vec<(String, Vec<u8>)> = ids
            .iter()
            .map(|id| {
                let mut bytes = vec![0; size];
                content.fill(*id, &mut bytes);
                (key(prefix, *id), bytes)
            })
            .collect();
        let items: Vec<(&str, Source<'_>)> = blocks
            .iter()
            .map(|(k, b)| (k.as_str(), Source::Bytes(b)))
            .collect();
        for stored in client.put_batch(&items, &PutOptions::default()) {
            stored?;
        }
        id += ids.len() as u64;
    }
    Ok(())
}

fn clean_up(client: &Client, prefix: &str) -> Result<(), Ending> {
    let options = RemoveManyOptions {
        leases: Leases::Override,
        ..RemoveManyOptions::default()
    };
    client.remove_many(&Filter::Prefix(prefix.as_bytes().to_vec()), &options)?;
    Ok(())
}

impl Job<'_> {
    fn work(&self, index: u64, size: usize) -> Result<(Count, Histogram<u64>), Ending> {
        let mut count = Count::default();
        let mut latency = histogram()?;
        let batch = u64::from(self.args.batch);
        let mut rooms = vec![vec![0; size]; usize::try_from(batch).unwrap_or(1)];
        // Threads walk the objects in step, far apart from each other.
        let mut next = index * self.objects / u64::from(self.args.threads).max(1);
        while Instant::now() < self.end {
            let ids: Vec<u64> = match self.args.op {
                BenchOp::Put => {
                    let from = self.fresh.fetch_add(batch, Ordering::Relaxed);
                    (from..from + batch).collect()
                }
                BenchOp::Get | BenchOp::Exists => {
                    let ids = (next..next + batch)
                        .map(|id| id % self.objects.max(1))
                        .collect();
                    next = (next + batch) % self.objects.max(1);
                    ids
                }
            };
            let keys: Vec<String> = ids.iter().map(|id| key(self.prefix, *id)).collect();
            if self.args.op == BenchOp::Put {
                for (id, room) in ids.iter().zip(&mut rooms) {
                    self.content.fill(*id, room);
                }
            }
            let start = Instant::now();
            let results: Vec<Result<u64, Failure>> = match self.args.op {
                BenchOp::Put => self.put(&keys, &rooms),
                BenchOp::Get => self.get(&keys, &mut rooms),
                BenchOp::Exists => self.exists(&keys),
            };
            let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(LATENCY_MAX_US);
            latency.saturating_record(took);
            count.ops += 1;
            for ((id, result), room) in ids.iter().zip(results).zip(&rooms) {
                match result {
                    Ok(bytes) => {
                        count.bytes += bytes;
                        if self.args.verify && self.args.op == BenchOp::Get {
                            count.wrong_bytes += self.content.wrong_bytes(*id, room);
                        }
                    }
                    Err(failure) => {
                        *count.errors.entry(failure.code.number()).or_default() += 1;
                    }
                }
            }
        }
        Ok((count, latency))
    }

    fn put(&self, keys: &[String], rooms: &[Vec<u8>]) -> Vec<Result<u64, Failure>> {
        let items: Vec<(&str, Source<'_>)> = keys
            .iter()
            .zip(rooms)
            .map(|(k, b)| (k.as_str(), Source::Bytes(b)))
            .collect();
        let results = self.client.put_batch(&items, &PutOptions::default());
        let bytes = self.args.size;
        results
            .into_iter()
            .map(|r| {
                r.map(|stored| match stored {
                    Stored::Written { .. } => bytes,
                    Stored::Exists { .. } => 0,
                })
            })
            .collect()
    }

    fn get(&self, keys: &[String], rooms: &mut [Vec<u8>]) -> Vec<Result<u64, Failure>> {
        let mut items: Vec<GetItem<'_>> = keys
            .iter()
            .zip(rooms)
            .map(|(k, room)| GetItem::whole(k.as_bytes(), Target::Bytes(room)))
            .collect();
        let results = self.client.get_items(&mut items, &GetOptions::default());
        results.into_iter().map(|r| r.map(|got| got.len)).collect()
    }

    fn exists(&self, keys: &[String]) -> Vec<Result<u64, Failure>> {
        let results = self.client.exists_batch(keys, &ExistsOptions::default());
        let missing = || {
            Failure::new(
                Code::ObjectNotFound,
                snowskin_types::Stage::Locate,
                "no such object",
            )
        };
        results
            .into_iter()
            .map(|r| match r {
                Ok(Presence::Here { .. }) => Ok(0),
                Ok(Presence::Absent) => Err(missing()),
                Err(failure) => Err(failure),
            })
            .collect()
    }
}

fn report(
    args: &BenchArgs,
    common: &Common,
    all: &Count,
    latency: &Histogram<u64>,
    elapsed: Duration,
    cpu: Duration,
) {
    let op = match args.op {
        BenchOp::Put => "put",
        BenchOp::Get => "get",
        BenchOp::Exists => "exists",
    };
    let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
    let gigabytes = all.bytes as f64 / 1e9;
    let cpu_per_gb = if all.bytes > 0 {
        Some(cpu.as_secs_f64() / gigabytes)
    } else {
        None
    };
    let (p50, p99) = (
        latency.value_at_quantile(0.5),
        latency.value_at_quantile(0.99),
    );
    if common.json {
        let errors: BTreeMap<String, u64> = all
            .errors
            .iter()
            .map(|(code, n)| (code.to_string(), *n))
            .collect();
        let object = json!({
            "schema": "snowskin.bench/1",
            "op": op,
            "size": args.size,
            "batch": args.batch,
            "threads": args.threads,
            "ops": all.ops,
            "ops_per_s": all.ops as f64 / seconds,
            "gbps": gigabytes / seconds,
            "p50_us": p50,
            "p99_us": p99,
            "max_us": latency.max(),
            "errors": errors,
            "cpu_s_per_gb": cpu_per_gb,
            "verified": args.verify && args.op == BenchOp::Get && all.wrong_bytes == 0,
            "wrong_bytes": all.wrong_bytes,
        });
        say!("{object}");
        return;
    }
    say!(
        "{op} {} x {} B, {} thread(s): {:.0} calls/s, {:.2} GB/s, p50 {p50} us, p99 {p99} us, max {} us",
        args.batch,
        args.size,
        args.threads,
        all.ops as f64 / seconds,
        gigabytes / seconds,
        latency.max()
    );
    if let Some(cpu) = cpu_per_gb {
        say!("client CPU {cpu:.3} s per GB");
    }
    for (code, n) in &all.errors {
        say!("{n} x {} ({code})", Code::from_number(*code).name());
    }
}
