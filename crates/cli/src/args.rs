//! The command line as a type.

use clap::{Args, Parser, Subcommand, ValueEnum};
use snowskin_types::units;
use std::path::PathBuf;
use std::time::Duration;

fn size(text: &str) -> Result<u64, String> {
    units::parse_size(text).map_err(|e| e.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text, Duration::from_secs(1)).map_err(|e| e.to_string())
}

/// Most requests of a generated trace and the like: a few GiB while it is made.
const COUNT_MAX: usize = 10_000_000;

fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(value) if (1..=COUNT_MAX).contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is not in 1..={COUNT_MAX}")),
    }
}

/// A deadline that a client accepts.
fn deadline(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(1)..=snowskin_client::TIMEOUT_MAX;
    match duration(text)? {
        time if allowed.contains(&time) => Ok(time),
        _ => Err(format!("{text:?} is not from 1ms to 24h")),
    }
}

/// A bare lease is in milliseconds, as upstream's.
fn lease(text: &str) -> Result<Duration, String> {
    units::parse_duration(text, Duration::from_millis(1)).map_err(|e| e.to_string())
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!(
            "{text:?} is not a share: write a number from 0 to 1"
        )),
    }
}

/// A lease of a replay: real time, or trace time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayLease {
    /// As long on the wall clock.
    Real(Duration),
    /// As long on the clock of the trace.
    Trace(Duration),
}

fn replay_lease(text: &str) -> Result<ReplayLease, String> {
    match text.strip_prefix("trace:") {
        Some(rest) => lease(rest).map(ReplayLease::Trace),
        None => lease(text).map(ReplayLease::Real),
    }
}

/// A distributed KV-cache pool for LLM inference.
#[derive(Debug, Parser)]
#[command(
    name = "snowskin",
    disable_version_flag = true,
    args_override_self = true
)]
#[command(
    after_help = "Examples:\n  snowskin demo\n  snowskin up --nodes 2 --segment-size 1GiB\n  \
    snowskin put greeting hello.txt --master 127.0.0.1:50051\n  \
    snowskin get greeting -o out.txt --master 127.0.0.1:50051\n\n\
    Exit codes: 0 ok, 1 runtime, 2 usage, 3 not found, 4 deadline or unreachable, 5 integrity, 6 refused."
)]
pub struct Cli {
    /// Print the version (with --json: version, commit, wire, disk_format)
    #[arg(long)]
    pub version: bool,
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Clone, Args, Default)]
pub struct Common {
    /// Take options from a TOML, YAML or JSON file; the command line overrides it [env: SNOWSKIN_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the options in force and stop
    #[arg(long, global = true)]
    pub print_config: bool,
    /// Print results as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Deadline of each call [env: SNOWSKIN_TIMEOUT_MS]
    #[arg(long, global = true, value_name = "TIME", value_parser = deadline)]
    pub timeout: Option<Duration>,
    /// Deadline of metadata calls; --timeout overrides it [env: MC_RPC_TIMEOUT_MS]
    #[arg(long, global = true, hide_short_help = true, value_name = "TIME", value_parser = deadline)]
    pub rpc_timeout: Option<Duration>,
    /// Deadline of data calls; --timeout overrides it [env: MC_TRANSFER_TIMEOUT, in seconds]
    #[arg(long, global = true, hide_short_help = true, value_name = "TIME", value_parser = deadline)]
    pub transfer_timeout: Option<Duration>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the directory of a cluster
    #[command(after_help = "Example:\n  snowskin master --rpc-port 50051 --state-dir ./state")]
    Master(MasterArgs),
    /// Contribute memory to a cluster
    #[command(
        after_help = "Example:\n  snowskin node --master 10.0.0.1:50051 --segment-size 64GiB --advertise 10.0.0.7"
    )]
    Node(NodeArgs),
    /// Start a master and nodes on this machine
    #[command(after_help = "Example:\n  snowskin up --nodes 2 --segment-size 1GiB")]
    Up(UpArgs),
    /// Start a pool, run a workload through it, check every byte, and sum up
    #[command(
        after_help = "Examples:\n  snowskin demo\n  snowskin demo --trace conversation.jsonl --block-bytes 64KiB --json"
    )]
    Demo(ReplayArgs),
    /// Drive a pool with a trace
    #[command(
        after_help = "Example:\n  snowskin replay --trace t.jsonl --block-bytes 64KiB --capacity-blocks 5859 --policy lru --lease trace:1s"
    )]
    Replay(ReplayArgs),
    /// Make a multi-turn workload with shared prefixes
    #[command(after_help = "Example:\n  snowskin gen-trace --seed 7 --requests 5000 > t.jsonl")]
    GenTrace(GenTraceArgs),
    /// Measure a pool
    #[command(
        after_help = "Example:\n  snowskin bench --op get --size 1MiB --threads 4 --seconds 5"
    )]
    Bench(BenchArgs),
    /// Store an object
    #[command(
        after_help = "Examples:\n  snowskin put k1 block.bin\n  echo hello | snowskin put k1 -"
    )]
    Put(PutArgs),
    /// Read an object
    #[command(after_help = "Example:\n  snowskin get k1 -o block.bin")]
    Get(GetArgs),
    /// Ask which keys are readable
    #[command(after_help = "Example:\n  snowskin exists k1 k2")]
    Exists(ExistsArgs),
    /// Remove objects
    #[command(
        after_help = "Examples:\n  snowskin rm k1 k2\n  snowskin rm --prefix model-a/ --force"
    )]
    Rm(RmArgs),
    /// List keys
    #[command(after_help = "Example:\n  snowskin ls --prefix model-a/ --limit 100")]
    Ls(LsArgs),
    /// Show the cluster, or one object
    #[command(after_help = "Examples:\n  snowskin stat\n  snowskin stat k1 --json")]
    Stat(StatArgs),
    /// Compare the directory with what the nodes hold
    #[command(
        after_help = "Waits until nobody changes or reads the pool (30 s, or --timeout), then reads every replica of the tenant.\nEnds with 5 when there are differences, with 4 when some replicas could not be read.\n\nExample:\n  snowskin audit --json"
    )]
    Audit(AuditArgs),
}

/// How a client reaches its cluster.
#[derive(Debug, Clone, Args, Default)]
pub struct ClientArgs {
    /// Address of the master [env: SNOWSKIN_MASTER, MOONCAKE_MASTER]
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// Namespace of keys
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// File that holds the cluster's token [env: SNOWSKIN_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Least recently used first
    Lru,
    /// S3-FIFO
    S3fifo,
}

/// Placement of new replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Placement {
    /// Uniformly
    Random,
    /// Highest share of free space among a sample
    FreeRatioFirst,
}

/// `snowskin master`
#[derive(Debug, Clone, Args)]
pub struct MasterArgs {
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    pub rpc_address: String,
    /// Port to listen on; 0 lets the system choose
    #[arg(long, default_value_t = 50051)]
    pub rpc_port: u16,
    /// Address of the HTTP server
    #[arg(long, default_value = "0.0.0.0")]
    pub metrics_host: String,
    /// Port of the HTTP server; 0 lets the system choose
    #[arg(long, default_value_t = 9003)]
    pub metrics_port: u16,
    /// Folder of the small durable state [default: the user's state folder]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Name of the cluster; a state folder of another cluster is refused
    #[arg(long)]
    pub cluster_id: Option<String>,
    /// File that holds the token clients and nodes must show
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Read lease (a bare number is in ms)
    #[arg(long, default_value = "10s", value_parser = lease)]
    pub default_kv_lease_ttl: Duration,
    /// Silence after which a node is gone
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub client_ttl: Duration,
    /// Silence after which a node is suspect
    #[arg(long, default_value = "3s", value_parser = duration)]
    pub suspect_after: Duration,
    /// Time a put waits for space
    #[arg(long, default_value = "500ms", value_parser = lease)]
    pub put_wait: Duration,
    /// When an unfinished put may be preempted
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub put_start_discard_timeout: Duration,
    /// Share of a segment at which eviction starts
    #[arg(long, default_value = "0.90", value_parser = ratio)]
    pub eviction_high_watermark_ratio: f64,
    /// Share of a segment that one run of eviction frees
    #[arg(long, default_value = "0.05", value_parser = ratio)]
    pub eviction_ratio: f64,
    /// Order of eviction
    #[arg(long, value_enum, default_value = "lru")]
    pub policy: Policy,
    /// Placement of new replicas
    #[arg(long, value_enum, default_value = "random")]
    pub allocation_strategy: Placement,
    /// Also write the ready line to this file
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// End when standard input ends (for processes that another one starts)
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
}

/// `snowskin node`
#[derive(Debug, Clone, Args)]
pub struct NodeArgs {
    /// Address of the master [env: SNOWSKIN_MASTER, MOONCAKE_MASTER]
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// Memory to contribute
    #[arg(long, default_value = "1GiB", value_parser = size)]
    pub segment_size: u64,
    /// Address of the data server; port 0 lets the system choose [env: MC_TCP_BIND_ADDRESS (host)]
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:0")]
    pub data_address: String,
    /// Address that clients are told
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Option<String>,
    /// Name of the host, for placement on distinct hosts [default: the host's name]
    #[arg(long)]
    pub host_id: Option<String>,
    /// Verify checksums of received bytes [env: MOONCAKE_STORE_CHECKSUM (1 or 0)]
    #[arg(long, default_value = "verify")]
    pub checksum: Checksum,
    /// Order of eviction; overrides the master's
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,
    /// Share of the segment at which eviction starts; overrides the master's
    #[arg(long, value_parser = ratio)]
    pub eviction_high_watermark_ratio: Option<f64>,
    /// Share of the segment that one run of eviction frees; overrides the master's
    #[arg(long, value_parser = ratio)]
    pub eviction_ratio: Option<f64>,
    /// Time a put waits for space; overrides the master's
    #[arg(long, value_parser = lease)]
    pub put_wait: Option<Duration>,
    /// File that holds the cluster's token [env: SNOWSKIN_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Also write the ready line to this file
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// End when standard input ends (for processes that another one starts)
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
}

/// Whether received bytes are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Checksum {
    /// Verified at the node and at every read
    Verify,
    /// The node trusts the network; readers still verify
    Off,
}

/// `snowskin up`
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// Nodes to start
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// Memory of each node
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pub segment_size: u64,
    /// Port of the master; 0 lets the system choose
    #[arg(long, default_value_t = 0)]
    pub rpc_port: u16,
    /// Folder of the master's state [default: a folder that ends with the pool]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Order of eviction
    #[arg(long, value_enum, default_value = "lru")]
    pub policy: Policy,
    /// Read lease (a bare number is in ms)
    #[arg(long, default_value = "10s", value_parser = lease)]
    pub default_kv_lease_ttl: Duration,
    /// Also write the ready line to this file
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// `snowskin demo` and `snowskin replay`
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Trace to run [default of demo: a generated multi-turn workload]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Bytes of one block
    #[arg(long, default_value = "64KiB", value_parser = size)]
    pub block_bytes: u64,
    /// Blocks at which eviction starts, over all nodes [default: room for all]
    #[arg(long)]
    pub capacity_blocks: Option<u64>,
    /// Read lease: real time, or trace:TIME for the trace's own clock
    #[arg(long, default_value = "trace:1s", value_parser = replay_lease)]
    pub lease: ReplayLease,
    /// Order of eviction
    #[arg(long, value_enum, default_value = "lru")]
    pub policy: Policy,
    /// Run the eviction policy alone, without bytes and without a pool
    #[arg(long)]
    pub policy_only: bool,
    /// Directory, node and client in this one process
    #[arg(long, conflicts_with = "master")]
    pub embedded: bool,
    /// Nodes to start
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// Use a running cluster instead of starting one
    #[arg(long, value_name = "HOST:PORT")]
    pub master: Option<String>,
    /// File that holds the cluster's token [env: SNOWSKIN_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Stop after so many requests
    #[arg(long, value_parser = count)]
    pub requests: Option<usize>,
    /// Seed of the generated workload
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `snowskin gen-trace`
#[derive(Debug, Clone, Args)]
pub struct GenTraceArgs {
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Requests
    #[arg(long, default_value_t = 2000, value_parser = count)]
    pub requests: usize,
    /// Conversations under way at any time
    #[arg(long, default_value_t = 64, value_parser = count)]
    pub conversations: usize,
    /// Different system prompts
    #[arg(long, default_value_t = 8, value_parser = count)]
    pub systems: usize,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// What `bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchOp {
    /// Store fresh objects
    Put,
    /// Read stored objects
    Get,
    /// Look up stored keys
    Exists,
}

/// `snowskin bench`
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to measure
    #[arg(long, value_enum, default_value = "get")]
    pub op: BenchOp,
    /// Bytes of one object
    #[arg(long, default_value = "1MiB", value_parser = size)]
    pub size: u64,
    /// Keys of one call
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub batch: u32,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Time to measure
    #[arg(long, default_value = "5", value_parser = duration)]
    pub seconds: Duration,
    /// Compare every byte read with what was stored
    #[arg(long)]
    pub verify: bool,
}

/// `snowskin put`
#[derive(Debug, Clone, Args)]
pub struct PutArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Key
    pub key: String,
    /// File with the bytes; - or nothing reads standard input
    pub file: Option<PathBuf>,
    /// Copies, on distinct nodes
    #[arg(long, default_value_t = 1)]
    pub replicas: u32,
    /// Never evict it
    #[arg(long)]
    pub pin: bool,
    /// Label that joins objects
    #[arg(long)]
    pub group: Option<String>,
    /// Replace an older version
    #[arg(long)]
    pub replace: bool,
}

/// `snowskin get`
#[derive(Debug, Clone, Args)]
pub struct GetArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Key
    pub key: String,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `snowskin exists`
#[derive(Debug, Clone, Args)]
pub struct ExistsArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Keys
    #[arg(required = true)]
    pub keys: Vec<String>,
}

/// `snowskin rm`
#[derive(Debug, Clone, Args)]
pub struct RmArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Keys
    #[arg(required_unless_present_any = ["prefix", "regex", "all"])]
    pub keys: Vec<String>,
    /// All keys that begin so
    #[arg(long, conflicts_with_all = ["keys", "regex", "all"])]
    pub prefix: Option<String>,
    /// All keys that match (searched, not anchored; syntax of the regex crate)
    #[arg(long, conflicts_with_all = ["keys", "all"])]
    pub regex: Option<String>,
    /// All keys of the tenant
    #[arg(long, conflicts_with = "keys")]
    pub all: bool,
    /// Also under a lease
    #[arg(long)]
    pub force: bool,
}

/// `snowskin ls`
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Keys that begin so
    #[arg(long)]
    pub prefix: Option<String>,
    /// Keys to print
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub limit: u32,
    /// Go on after this key
    #[arg(long)]
    pub cursor: Option<String>,
}

/// `snowskin stat`
#[derive(Debug, Clone, Args)]
pub struct StatArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Key; without one the cluster is shown
    pub key: Option<String>,
}

/// `snowskin audit`
#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Ask owners to repair what differs
    #[arg(long)]
    pub repair: bool,
}
