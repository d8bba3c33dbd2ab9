//! Block traces: reading them and making them.

pub mod generate;
pub mod read;
