//! `snowskin demo` and `snowskin replay`: a real pool under a real workload, every byte checked.

use crate::args::{Common, Policy, ReplayArgs, ReplayLease};
use crate::commands::connect::client;
use crate::commands::embedded;
use crate::commands::serve::eviction;
use crate::commands::up::policy_word;
use crate::exit::{Ending, error_json};
use crate::pool::{Pool, PoolConfig};
use crate::trace::generate::{Shape, generate};
use crate::trace::read::{TraceRequest, read};
use crate::workload::policy_only;
use crate::workload::run::{Outcome, Plan, run as run_trace};
use crate::workload::sizing::{self, NodeSize};
use crate::workload::tally::Tally;
use serde_json::{Value, json};
use snowskin_client::{CallOptions, Client};
use snowskin_types::units::show_size;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Which of the two commands runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A workload is made when no trace is given.
    Demo,
    /// A trace must be given.
    Replay,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Demo => "demo",
            Kind::Replay => "replay",
        }
    }
}

/// A pool and the client that drives it; the client goes first.
struct Bench {
    client: Client,
    _pool: Option<Pool>,
}

/// Runs the command.
pub fn run(kind: Kind, args: &ReplayArgs, common: &Common) -> Result<(), Ending> {
    let mut trace = match (&args.trace, kind) {
        (Some(path), _) => read(path).map_err(|e| Ending::Usage(format!("--trace: {e}")))?,
        (None, Kind::Demo) => generate(Shape {
            seed: args.seed,
            ..Shape::default()
        }),
        (None, Kind::Replay) => {
            return Err(Ending::Usage(
                "--trace FILE is missing; `snowskin gen-trace` makes one".into(),
            ));
        }
    };
    if let Some(limit) = args.requests {
        trace.truncate(limit);
    }
    if args.block_bytes == 0 {
        return Err(Ending::Usage(
            "--block-bytes is 0; allowed are 1 and more".into(),
        ));
    }
    if args.capacity_blocks == Some(0) {
        return Err(Ending::Usage(
            "--capacity-blocks is 0; allowed are 1 and more".into(),
        ));
    }
    if args.policy_only {
        let start = Instant::now();
        let capacity = args.capacity_blocks.unwrap_or(u64::MAX);
        let (tally, evictions) = policy_only::run(&trace, eviction(args.policy), capacity);
        print(
            kind,
            args,
            common,
            &Summary::policy_only(&tally, evictions, start.elapsed()),
        );
        return Ok(());
    }
    if kind == Kind::Demo && !common.json {
        tell!(
            "{} requests, {} block references; {}",
            trace.len(),
            trace.iter().map(|r| r.hash_ids.len()).sum::<usize>(),
            match (&args.master, args.embedded) {
                (Some(master), _) => format!("cluster at {master}"),
                (None, true) => "directory, node and client in this process".to_owned(),
                (None, false) => format!("starting a master and {} nodes", args.nodes),
            }
        );
    }
    let bench = open(args, common, &trace)?;
    let plan = Plan {
        block_bytes: args.block_bytes,
        lease: args.lease,
        progress: !common.json,
    };
    let before = bench.client.stat(&CallOptions::default())?.objects;
    let outcome = run_trace(&bench.client, &trace, plan)?;
    let after = bench.client.stat(&CallOptions::default())?.objects;
    let evictions = (before + outcome.stored).saturating_sub(after);
    let summary = Summary::of(&outcome, evictions);
    print(kind, args, common, &summary);
    finish(&outcome, common)
}

/// How the command ends. With `--json` the printed result has it all, and is the only object.
fn finish(outcome: &Outcome, common: &Common) -> Result<(), Ending> {
    let ending = if outcome.wrong_bytes > 0 {
        Ending::Integrity(format!("{} wrong bytes were read", outcome.wrong_bytes))
    } else if outcome.failed_gets + outcome.failed_puts > 0 {
        Ending::Runtime(format!(
            "{} gets and {} puts failed",
            outcome.failed_gets, outcome.failed_puts
        ))
    } else {
        return Ok(());
    };
    if common.json {
        return Err(Ending::Printed(ending.exit_code()));
    }
    for failure in &outcome.failures {
        tell!("snowskin: {failure}");
    }
    Err(ending)
}

fn size(args: &ReplayArgs, trace: &[TraceRequest], nodes: u64) -> NodeSize {
    match args.capacity_blocks {
        Some(blocks) => sizing::limited(blocks, args.block_bytes, nodes),
        None => {
            let distinct: HashSet<u64> = trace
                .iter()
                .flat_map(|r| r.hash_ids.iter().copied())
                .collect();
            sizing::unlimited(distinct.len() as u64, args.block_bytes, nodes)
        }
    }
}

fn open(args: &ReplayArgs, common: &Common, trace: &[TraceRequest]) -> Result<Bench, Ending> {
    let lease = match args.lease {
        ReplayLease::Real(lease) => lease,
        // Each request asks for its own shorter one.
        ReplayLease::Trace(lease) => lease,
    };
    if let Some(master) = &args.master {
        let address = crate::args::ClientArgs {
            master: Some(master.clone()),
            tenant: "default".into(),
            token_file: args.token_file.clone(),
        };
        let client = client(&address, common)?;
        return Ok(Bench {
            client,
            _pool: None,
        });
    }
    if args.embedded {
        let size = size(args, trace, 1);
        let client = embedded::start(size, lease, eviction(args.policy))?;
        return Ok(Bench {
            client,
            _pool: None,
        });
    }
    let size = size(args, trace, u64::from(args.nodes));
    let token = args.token_file.as_ref();
    let token: Vec<String> = token
        .map(|file| format!("--token-file={}", file.display()))
        .into_iter()
        .collect();
    let mut master_options = vec![
        format!("--default-kv-lease-ttl={}ms", lease.as_millis()),
        format!("--eviction-high-watermark-ratio={}", size.high),
        format!("--eviction-ratio={}", size.ratio),
        format!("--policy={}", policy_word(args.policy)),
    ];
    master_options.extend(token.iter().cloned());
    let config = PoolConfig {
        nodes: args.nodes,
        segment_size: size.segment,
        master_options,
        node_options: token,
        rpc_port: 0,
        state_dir: None,
    };
    let pool = Pool::start(&config)?;
    let address = crate::args::ClientArgs {
        master: Some(pool.master()?),
        tenant: "default".into(),
        token_file: args.token_file.clone(),
    };
    let client = client(&address, common)?;
    Ok(Bench {
        client,
        _pool: Some(pool),
    })
}

/// The figures of a run in the words of the outside contract.
struct Summary {
    tally: Tally,
    wrong_bytes: u64,
    failed_gets: u64,
    failed_puts: u64,
    evictions: u64,
    bytes_read: u64,
    bytes_written: u64,
    p50_us: u64,
    p99_us: u64,
    elapsed: Duration,
    failures: Vec<Value>,
}

impl Summary {
    fn policy_only(tally: &Tally, evictions: u64, elapsed: Duration) -> Self {
        Summary {
            tally: tally.clone(),
            wrong_bytes: 0,
            failed_gets: 0,
            failed_puts: 0,
            evictions,
            bytes_read: 0,
            bytes_written: 0,
            p50_us: 0,
            p99_us: 0,
            elapsed,
            failures: Vec::new(),
        }
    }

    fn of(outcome: &Outcome, evictions: u64) -> Self {
        Summary {
            tally: outcome.tally.clone(),
            wrong_bytes: outcome.wrong_bytes,
            failed_gets: outcome.failed_gets,
            failed_puts: outcome.failed_puts,
            evictions,
            bytes_read: outcome.bytes_read,
            bytes_written: outcome.bytes_written,
            p50_us: outcome.read_us.value_at_quantile(0.5),
            p99_us: outcome.read_us.value_at_quantile(0.99),
            elapsed: outcome.elapsed,
            failures: outcome.failures.iter().map(error_json).collect(),
        }
    }

    fn gbps(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds == 0.0 {
            return 0.0;
        }
        (self.bytes_read + self.bytes_written) as f64 / seconds / 1e9
    }

    fn json(&self, kind: Kind, args: &ReplayArgs) -> Value {
        let policy = policy_word(args.policy);
        json!({
            "schema": format!("snowskin.{}/1", kind.name()),
            "requests": self.tally.requests,
            "block_refs": self.tally.block_refs,
            "block_hits": self.tally.block_hits,
            "block_hit_rate": self.tally.block_hit_rate(),
            "prefix_hit_rate": self.tally.prefix_hit_rate(),
            "token_hit_rate": self.tally.token_hit_rate(),
            "wrong_bytes": self.wrong_bytes,
            "failed_gets": self.failed_gets,
            "failed_puts": self.failed_puts,
            "evictions": self.evictions,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "gbps": self.gbps(),
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "policy": policy,
            "capacity_blocks": args.capacity_blocks,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "failures": self.failures,
        })
    }
}

fn print(kind: Kind, args: &ReplayArgs, common: &Common, summary: &Summary) {
    if common.json {
        say!("{}", summary.json(kind, args));
        return;
    }
    let tally = &summary.tally;
    let policy = match args.policy {
        Policy::Lru => "lru",
        Policy::S3fifo => "s3fifo",
    };
    let room = match args.capacity_blocks {
        Some(blocks) => format!("{blocks} blocks, {policy}"),
        None => "room for all".to_owned(),
    };
    say!("requests          {} ({room})", tally.requests);
    say!(
        "blocks found      {} of {}  ({:.4})",
        tally.block_hits,
        tally.block_refs,
        tally.block_hit_rate()
    );
    say!("prefix hit rate   {:.4}", tally.prefix_hit_rate());
    say!("token hit rate    {:.4}", tally.token_hit_rate());
    if !args.policy_only {
        say!(
            "bytes             {} read, {} written, {:.2} GB/s in all",
            show_size(summary.bytes_read),
            show_size(summary.bytes_written),
            summary.gbps()
        );
        say!(
            "read of a request p50 {} us, p99 {} us",
            summary.p50_us,
            summary.p99_us
        );
        say!(
            "wrong bytes       {} (failed gets {}, failed puts {})",
            summary.wrong_bytes,
            summary.failed_gets,
            summary.failed_puts
        );
    }
    say!("evictions         {}", summary.evictions);
    say!("time              {:.2} s", summary.elapsed.as_secs_f64());
}
