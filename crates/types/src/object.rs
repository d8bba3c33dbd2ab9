//! What is said of an object and its replicas, on every link alike.

use crate::id::{Epoch, NodeId};
use crate::time::Millis;
use crate::version::Version;
use std::sync::Arc;

/// Where a replica's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tier {
    /// The node's memory segment.
    #[default]
    Dram,
    /// A disk of the node.
    Ssd,
}

/// Attributes a put gives its object; kept by the owner and told again in inventories.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Attributes {
    /// Never evicted.
    pub hard_pin: bool,
    /// Evicted last for this long.
    pub soft_pin: Option<Millis>,
    /// Joined with the objects of the same group.
    pub group: Option<Arc<str>>,
    /// Informational tag (upstream's data type code).
    pub data_type: u32,
}

/// Size and checksum of one version's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Combination of the piece checksums.
    pub checksum: u64,
}

/// A process that may hold a replica, and where it listens for data requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Who.
    pub node: NodeId,
    /// Which process life.
    pub epoch: Epoch,
    /// `host:port` of its data server.
    pub address: Arc<str>,
}

/// One incarnation of a key at one process life of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holding {
    /// Who.
    pub node: NodeId,
    /// Which process life.
    pub epoch: Epoch,
    /// Which incarnation.
    pub version: Version,
}
