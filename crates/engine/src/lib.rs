//! The transfer engine: peers named `host:port` read and write each other's registered memory.
//!
//! Owns: sessions between engines, batches of one-sided transfers by absolute address, probes and
//! notifications. Must never: know the store or Python, touch memory outside of registered regions of
//! a peer, or wait without a deadline.
//!
//! An engine listens at two ports: its session port, which stands in its name and tells peers what is
//! registered, and the port of a data server over its registered memory. Blocking transfers run on their
//! caller's thread, batches on a few threads of the engine.
//!
//! Start reading at [`Engine`], then `mover` (how one batch is carried out) and `peers` (what is known
//! of others).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batches;
mod config;
mod counters;
mod engine;
mod error;
mod front;
mod inbox;
mod link;
mod managed;
mod mover;
mod names;
mod open;
mod peers;
mod plan;
mod request;
mod table;

pub use config::Config;
pub use counters::Counts;
pub use engine::Engine;
pub use error::EngineError;
pub use request::{BatchId, Notify, Opcode, Request, Status};
