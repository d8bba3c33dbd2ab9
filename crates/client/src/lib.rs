//! The client library: put, get, exists, remove and their batches.
//!
//! Owns: the planners of calls ([`plan`]), replica choice, deadlines and retries. Must never: keep
//! or touch a caller's buffer after a call was answered, trust a location without its owner's
//! consent, see master or node except to start and call them in the joined and embedded shapes.
//! Start reading at [`Client`], then `shape` (thin, joined, embedded) and [`plan`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
mod buffer;
mod calls;
mod client;
mod config;
mod context;
mod control;
mod counters;
mod data;
mod inspect;
mod options;
pub mod plan;
mod port;
mod run;
mod shape;

pub use buffer::{RegionShare, Room, Source, Target};
pub use calls::{Found, Page, Presence, Swept};
pub use client::{Client, GetItem};
pub use config::{Config, LOCATIONS_DEFAULT, LOCATIONS_MAX, TIMEOUT_MAX};
pub use counters::{Counters, Counts};
pub use inspect::{Condition, NamedReplica};
pub use options::{
    CallOptions, ExistsOptions, GetOptions, Leases, Locations, PutOptions, RemoveManyOptions,
    RemoveOptions, Tenants,
};
pub use plan::get::Got;
pub use plan::put::Stored;
pub use port::{Answer, MasterPort};
pub use snowskin_master::Config as MasterConfig;
pub use snowskin_node::{Config as NodeConfig, Master as NodeMaster, Metrics as NodeMetrics};
pub use snowskin_proto::hello::Token;

#[cfg(test)]
mod client_test;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod memory_test;
#[cfg(test)]
mod shape_test;
