//! TCP: ordinary sockets, bytes read straight into their final memory.
//!
//! `client` drives its sockets on the caller's thread; `server` is the data server of a node.

pub mod client;
pub mod counters;
pub mod endpoint;
mod inlet;
pub mod region_endpoint;
mod runs;
pub mod server;

/// Most bytes of one payload frame. Between two of them other answers find their way, and a refused
/// write stops.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 1 << 20;
