//! The master: the service shell around the directory.
//!
//! Owns: the control server, the state directory, the HTTP server, the clock that the directory is fed.
//! Must never: decide anything about objects (that is the directory's), hold object bytes, answer before what
//! the answer rests on is durable.
//! Start reading at [`Master`] (what starts it), then `hub` (how events meet the directory).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod config;
mod connection;
mod http;
mod hub;
mod journal;
mod ledger;
mod links;
mod metrics;
mod outbox;
mod seats;
mod server;
mod start;
mod state;
mod web;

pub use config::{Config, StartError};
pub use links::LinkSink;
pub use start::{Handle, LinkEnded, Master, NodeLink, Running, StopError};
pub use state::StateError;
