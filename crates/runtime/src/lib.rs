//! The seams between the product and the machine: time, randomness, tasks, sockets, disks, logs, signals.
//!
//! Owns: every place where the real clock, real randomness and the network are first touched, so that the
//! simulator and the tests can put something else there. Must never: know the protocol, read the
//! environment (values are passed in), or let a task outlive its owner.
//! Start reading at [`clock`], then [`spawn`] and [`net`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod backoff;
pub mod clock;
pub mod disk;
pub mod net;
pub mod rng;
pub mod signal;
pub mod spawn;
pub mod telemetry;
pub mod thread;
