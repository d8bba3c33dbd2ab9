//! The pure core of a node: the one authoritative index of the bytes it holds.
//!
//! Owns: index, extents, admission, eviction, the lifecycle of replicas. Must never: do I/O, read a clock,
//! see a socket or the wire format, give bytes back before the directory granted it.
//! Start reading at [`event`] and [`effect`], then `docs/design/protocol.md`, then [`store`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admit;
pub mod arena;
#[cfg(known_bugs)]
pub mod bugs;
pub mod config;
pub mod effect;
pub mod event;
pub mod evict;
mod index;
pub mod inspect;
pub mod invariant;
mod map;
mod one_shot;
mod outbox;
mod publish;
mod read;
mod replica;
mod retire;
mod session;
mod space;
pub mod store;

pub use config::{Config, ConfigError};
pub use store::Store;
