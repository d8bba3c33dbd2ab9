//! A node: the service shell around the store.
//!
//! Owns: the segment, the data server, the session with the master, the clock that the store is fed, the
//! threads of all that. Must never: decide anything about objects (that is the store's), let bytes be
//! touched that the store has not granted, keep a reservation or a pin whose owner has gone.
//! Start reading at [`Node`] (what starts it), then `engine` (how events meet the store).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod config;
mod endpoint;
mod engine;
mod guard;
mod link;
mod local;
mod memory;
mod metrics;
mod scrub;
mod session;
mod start;

pub use config::{
    Config, LinkSink, Listening, LocalLink, LocalMaster, Master, Population, StartError, Verify,
};
pub use local::{Handle, PendingWrite};
pub use memory::{CONTROL_BYTES, ControlPage};
pub use metrics::Metrics;
pub use start::{Node, Running, StopError};
