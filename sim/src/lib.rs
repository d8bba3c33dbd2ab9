//! A deterministic cluster: the real cores of master and node and the real planners of the client
//! in one thread, under simulated time, network, memory and faults.
//!
//! Owns: the fault model, the oracle, the invariants (`invariants/`) and the fixed schedules
//! (`scenarios/`). Must never: read a clock, use randomness other than [`rng`], depend on the order
//! of a hash table, decide anything by checksums.
//! Start reading at [`world`], then [`oracle`] and [`invariants`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod clock;
pub mod content;
pub mod cores;
pub mod faults;
pub mod host;
#[path = "../invariants/mod.rs"]
pub mod invariants;
pub mod links;
pub mod liveness;
pub mod memory;
pub mod meta;
pub mod net;
pub mod oracle;
pub mod packet;
pub mod queue;
pub mod rng;
pub mod run;
#[path = "../scenarios/mod.rs"]
pub mod scenarios;
pub mod script;
pub mod setup;
pub mod trace;
pub mod watch;
pub mod workload;
pub mod world;
