//! The pure core of the master: a directory of published replicas.
//!
//! Owns: which version of a key is current, who is named as holding it, leases, sessions, obligations to
//! retire. Must never: do I/O, read a clock, see a socket or the wire format, trust a hint over its owner.
//! Start reading at [`event`] and [`effect`], then `docs/design/protocol.md`, then `directory.rs`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(known_bugs)]
pub mod bugs;
pub mod config;
pub mod directory;
mod draw;
mod durable;
pub mod effect;
pub mod event;
pub mod gauges;
mod group;
pub mod inspect;
mod invariant;
mod jobs;
mod keys;
mod lease;
mod listing;
mod lookup;
mod node;
mod object;
mod obligations;
mod outbox;
mod placement;
mod publish;
mod remembered;
mod removal;
mod report;
mod request;
mod reserve;
mod session;
mod sweep;
mod table;
mod tick;
mod timers;
mod waits;

#[cfg(test)]
mod holes_test;
#[cfg(test)]
mod lifecycle_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod session_test;
#[cfg(test)]
mod sweep_test;
#[cfg(test)]
mod testkit;
#[cfg(test)]
mod unlisted_test;
