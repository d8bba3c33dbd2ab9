//! The shells of the simulated processes: they carry out what the cores want and feed back what happened.

pub mod ask;
pub mod client;
pub mod master;
pub mod node;
