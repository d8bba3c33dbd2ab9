//! The master: the service shell around the directory.
//!
//! Owns: the control server, the state directory, the admin HTTP server, the clock that the directory is fed.
//! Must never: decide anything about objects (that is the directory's), hold object bytes, answer before what
//! the answer rests on is durable.
//! Start reading at [`config`] (what it is started with), then `hub` (how events meet the directory).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod config;
mod journal;
pub mod state;

pub use config::{Config, StartError};
