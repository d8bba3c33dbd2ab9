//! The options that cases use most.

use crate::cluster::Node;
use snowskin_client::{
    ExistsOptions, GetOptions, Leases, Locations, PutOptions, RemoveManyOptions, RemoveOptions,
};
use snowskin_types::NodeId;
use snowskin_types::call::PutMode;
use std::time::Duration;

/// How much later than its deadline a call may return.
pub const LATE: Duration = Duration::from_millis(250);

/// A plain put.
pub fn put() -> PutOptions {
    PutOptions::default()
}

/// A put with this deadline.
pub fn put_within(timeout: Duration) -> PutOptions {
    PutOptions {
        timeout: Some(timeout),
        ..PutOptions::default()
    }
}

/// A put onto these nodes, one copy each.
pub fn put_on(nodes: &[&Node]) -> PutOptions {
    PutOptions {
        replicas: nodes.len().try_into().unwrap(),
        preferred: nodes.iter().map(|n| id(n)).collect(),
        ..PutOptions::default()
    }
}

/// A put with this number of copies.
pub fn copies(replicas: u32) -> PutOptions {
    PutOptions {
        replicas,
        ..PutOptions::default()
    }
}

/// A replacing put.
pub fn replace() -> PutOptions {
    PutOptions {
        mode: PutMode::Replace,
        ..PutOptions::default()
    }
}

/// A plain get.
pub fn get() -> GetOptions {
    GetOptions::default()
}

/// A get with this deadline.
pub fn get_within(timeout: Duration) -> GetOptions {
    GetOptions {
        timeout: Some(timeout),
        ..GetOptions::default()
    }
}

/// A get that asks the master anew.
pub fn fresh() -> GetOptions {
    GetOptions {
        locations: Locations::Fresh,
        ..GetOptions::default()
    }
}

/// An existence check.
pub fn exists() -> ExistsOptions {
    ExistsOptions::default()
}

/// A remove in spite of leases, with this deadline.
pub fn force(timeout: Duration) -> RemoveOptions {
    let mut options = RemoveOptions {
        leases: Leases::Override,
        ..RemoveOptions::default()
    };
    options.call.timeout = Some(timeout);
    options
}

/// A sweep in spite of leases.
pub fn force_many() -> RemoveManyOptions {
    RemoveManyOptions {
        leases: Leases::Override,
        ..RemoveManyOptions::default()
    }
}

/// The id of a node, from the address it advertises.
pub fn id(node: &Node) -> NodeId {
    NodeId::from_address(node.ready["advertised"].as_str().unwrap())
}
