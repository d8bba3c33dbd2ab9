//! `snowskin master` and `snowskin node`: long-running processes.

use crate::args::{Checksum, MasterArgs, NodeArgs, Placement, Policy};
use crate::commands::connect::{master_address, token};
use crate::exit::Ending;
use crate::launch::Stop;
use crate::ready;
use crate::signals::{END_OF_INPUT, Signals};
use serde_json::json;
use snowskin_master::{Config as MasterConfig, Master, StartError as MasterError};
use snowskin_node::{Config as NodeConfig, Master as MasterAt, Node, Verify};
use snowskin_types::checksum::crc64;
use snowskin_types::policy::{ClusterPolicy, EvictionPolicy, PlacementPolicy};
use snowskin_types::{ClusterId, Millis};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How often a process looks whether it has ended by itself.
const WATCH: Duration = Duration::from_millis(200);

/// The policy of the core.
pub fn eviction(policy: Policy) -> EvictionPolicy {
    match policy {
        Policy::Lru => EvictionPolicy::Lru,
        Policy::S3fifo => EvictionPolicy::S3Fifo,
    }
}

fn default_state_dir(variables: &BTreeMap<String, String>, port: u16) -> Result<PathBuf, Ending> {
    let get = |name: &str| variables.get(name).filter(|v| !v.is_empty());
    let base = match (get("XDG_STATE_HOME"), get("HOME")) {
        (Some(state), _) => PathBuf::from(state),
        (None, Some(home)) => PathBuf::from(home).join(".local/state"),
        (None, None) => {
            return Err(Ending::Usage(
                "--state-dir is missing, and neither XDG_STATE_HOME nor HOME is set".into(),
            ));
        }
    };
    Ok(base.join(format!("snowskin/master-{port}")))
}

/// `snowskin master`
pub fn master(args: &MasterArgs, variables: &BTreeMap<String, String>) -> Result<(), Stop> {
    let signals = Signals::listen()?;
    let state_dir = match &args.state_dir {
        Some(path) => path.clone(),
        None => default_state_dir(variables, args.rpc_port)?,
    };
    let config = MasterConfig {
        rpc_address: args.rpc_address.clone(),
        rpc_port: args.rpc_port,
        metrics_host: args.metrics_host.clone(),
        metrics_port: Some(args.metrics_port),
        state_dir: Some(state_dir),
        cluster_id: args
            .cluster_id
            .as_ref()
            .map(|name| ClusterId(crc64(name.as_bytes()))),
        token_file: args.token_file.clone(),
        policy: ClusterPolicy {
            lease_ttl: Millis::from(args.default_kv_lease_ttl),
            eviction_high: args.eviction_high_watermark_ratio,
            eviction_ratio: args.eviction_ratio,
            eviction_policy: eviction(args.policy),
            put_wait: Millis::from(args.put_wait),
            put_start_discard_timeout: Millis::from(args.put_start_discard_timeout),
        },
        placement: match args.allocation_strategy {
            Placement::Random => PlacementPolicy::Random,
            Placement::FreeRatioFirst => PlacementPolicy::FreeRatioFirst,
        },
        suspect_after: Millis::from(args.suspect_after),
        client_ttl: Millis::from(args.client_ttl),
    };
    let running = Master::start(&config).map_err(|e| match e {
        MasterError::System { .. } => Ending::Runtime(e.to_string()),
        other => Ending::Usage(other.to_string()),
    })?;
    let line = json!({
        "event": "ready",
        "role": "master",
        "pid": std::process::id(),
        "rpc": running.rpc().map(|a| a.to_string()),
        "http": running.http().map(|a| a.to_string()),
        "data": null,
        "node_id": null,
        "epoch": null,
        "term": running.term().0,
        "ssd": [],
    });
    ready::announce(&line, args.ready_file.as_deref())?;
    if args.exit_with_stdin {
        signals.watch_input();
    }
    let ended = running.ended().clone();
    let end = wait(&signals, || ended.is_cancelled());
    running
        .shutdown()
        .map_err(|e| Ending::Runtime(e.to_string()))?;
    finish(end, "the master")
}

/// `snowskin node`
pub fn node(args: &NodeArgs, timeout: Option<Duration>) -> Result<(), Stop> {
    let signals = Signals::listen()?;
    let master = MasterAt::Remote(master_address(args.master.as_ref())?);
    let mut config = NodeConfig::new(master, args.segment_size);
    config.data_address = args.data_address.clone();
    config.advertise = args.advertise.clone();
    config.host_id = args.host_id.clone().unwrap_or_default();
    config.token = token(args.token_file.as_deref())?;
    config.verify = match args.checksum {
        Checksum::Verify => Verify::Writes,
        Checksum::Off => Verify::Off,
    };
    config.put_wait = args.put_wait.map(Millis::from);
    config.eviction = args.policy.map(eviction);
    config.eviction_high = args.eviction_high_watermark_ratio;
    config.eviction_ratio = args.eviction_ratio;
    if let Some(timeout) = timeout {
        config.ready_timeout = timeout;
    }
    config.abandon = signals.any().clone();
    if args.exit_with_stdin {
        signals.watch_input();
    }
    let running = match Node::start(config) {
        Ok(running) => running,
        Err(snowskin_node::StartError::Abandoned) => {
            return finish(signals.wait(Duration::ZERO), "the node");
        }
        Err(error) => return Err(node_error(error).into()),
    };
    let line = json!({
        "event": "ready",
        "role": "node",
        "pid": std::process::id(),
        "rpc": null,
        "http": null,
        "data": running.data_address().map(|a| a.to_string()),
        "advertised": running.advertised(),
        "node_id": running.node_id().to_string(),
        "epoch": running.epoch().to_string(),
        "term": running.session().map(|s| s.term.0),
        "ssd": [],
    });
    ready::announce(&line, args.ready_file.as_deref())?;
    let end = {
        let ended = running.ended().clone();
        wait(&signals, || ended.is_cancelled())
    };
    running
        .shutdown()
        .map_err(|e| Ending::Runtime(e.to_string()))?;
    finish(end, "the node")
}

fn node_error(error: snowskin_node::StartError) -> Ending {
    use snowskin_node::StartError as E;
    match error {
        E::Unreachable { .. } | E::NoMaster { .. } => {
            tell!("snowskin: {error}");
            Ending::Printed(4)
        }
        E::Option { .. } | E::Limit(_) | E::Store(_) | E::Listen(_) => {
            Ending::Usage(error.to_string())
        }
        other => Ending::Runtime(other.to_string()),
    }
}

/// Waits for a reason to end: a signal, the end of input, or the process's own end (`None`).
fn wait(signals: &Signals, ended: impl Fn() -> bool) -> Option<u8> {
    loop {
        if let Some(number) = signals.wait(WATCH) {
            return Some(number);
        }
        if ended() {
            return None;
        }
    }
}

fn finish(end: Option<u8>, who: &str) -> Result<(), Stop> {
    match end {
        Some(END_OF_INPUT) => Ok(()),
        Some(number) => Err(Stop::Signal(number)),
        None => Err(Ending::Runtime(format!("{who} ended by itself; the log says why")).into()),
    }
}
