//! `snowskin up`

use crate::args::{Policy, UpArgs};
use crate::exit::Ending;
use crate::launch::Stop;
use crate::pool::{Pool, PoolConfig};
use crate::ready;
use crate::signals;
use std::time::Duration;

/// How often the members are looked after.
const WATCH: Duration = Duration::from_millis(200);

/// The word of a policy on the command line.
pub fn policy_word(policy: Policy) -> &'static str {
    match policy {
        Policy::Lru => "lru",
        Policy::S3fifo => "s3fifo",
    }
}

/// Starts a pool and keeps it until a signal, or until one of its processes ends.
pub fn run(args: &UpArgs) -> Result<(), Stop> {
    let signals = signals::Signals::listen()?;
    let lease = args.default_kv_lease_ttl.as_millis();
    let config = PoolConfig {
        nodes: args.nodes,
        segment_size: args.segment_size,
        master_options: vec![
            format!("--policy={}", policy_word(args.policy)),
            format!("--default-kv-lease-ttl={lease}ms"),
        ],
        node_options: Vec::new(),
        rpc_port: args.rpc_port,
        state_dir: args.state_dir.clone(),
    };
    let mut pool = Pool::start(&config)?;
    ready::announce(&pool.ready_line(), args.ready_file.as_deref())?;
    loop {
        if let Some(number) = signals.wait(WATCH) {
            drop(pool);
            return Err(Stop::Signal(number));
        }
        if let Some(what) = pool.ended() {
            return Err(Ending::Runtime(what).into());
        }
    }
}
