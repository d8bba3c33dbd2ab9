//! Clients of a test cluster.

use crate::cluster::Cluster;
use snowskin_client::{Client, Config};
use std::time::Duration;

/// A thin client of the cluster.
pub fn connect(cluster: &Cluster) -> Client {
    connect_to(&cluster.address())
}

/// A thin client of the master at this address.
pub fn connect_to(master: &str) -> Client {
    Client::connect(&Config::new(master)).unwrap()
}

/// A thin client with short deadlines: 2 s for metadata, 3 s for data.
pub fn connect_hasty(master: &str) -> Client {
    let mut config = Config::new(master);
    config.metadata_timeout = Duration::from_secs(2);
    config.data_timeout = Some(Duration::from_secs(3));
    Client::connect(&config).unwrap()
}
