//! The pure core of the master: a directory of published replicas.
//!
//! Owns: which version of a key is current, who is named as holding it, leases, sessions, obligations to
//! retire. Must never: do I/O, read a clock, see a socket or the wire format, trust a hint over its owner.
//! Start reading at [`event`] and [`effect`], then `docs/design/protocol.md`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod effect;
pub mod event;
