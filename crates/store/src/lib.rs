//! The pure core of a node: the one authoritative index of the bytes it holds.
//!
//! Owns: index, extents, admission, eviction, the lifecycle of replicas. Must never: do I/O, read a clock,
//! see a socket or the wire format, give bytes back before the directory granted it.
//! Start reading at [`event`] and [`effect`], then `docs/design/protocol.md`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod arena;
pub mod effect;
pub mod event;
