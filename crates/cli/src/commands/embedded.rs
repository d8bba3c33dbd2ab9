//! Directory, nodes and client in this one process.

use crate::exit::Ending;
use crate::workload::sizing::NodeSize;
use snowskin_client::{Client, Config};
use snowskin_types::Millis;
use snowskin_types::policy::{ClusterPolicy, EvictionPolicy};
use std::time::Duration;

/// Starts a pool of one node inside this process; it ends with the client.
pub fn start(size: NodeSize, lease: Duration, policy: EvictionPolicy) -> Result<Client, Ending> {
    let master = snowskin_master::Config {
        policy: ClusterPolicy {
            lease_ttl: Millis::from(lease),
            eviction_high: size.high,
            eviction_ratio: size.ratio,
            eviction_policy: policy,
            ..ClusterPolicy::default()
        },
        ..snowskin_master::Config::default()
    };
    // The address has no meaning in this shape.
    let unused = snowskin_node::Master::Remote(String::new());
    let node = snowskin_node::Config::new(unused, size.segment);
    Ok(Client::embed(
        &Config::new(String::new()),
        &master,
        vec![node],
    )?)
}
