//! Memory that engines name by address: where it lives, who may touch it, and how it is copied.
//!
//! Owns: the table of registered memory ([`Registry`]), the decision between host and device memory,
//! the vendors' drivers loaded at run time, and staging. Must never: let the processor touch an address
//! that was not shown to be mapped host memory, or keep memory claimed past the call that uses it.
#![warn(missing_docs)]

/// The table of registered memory of one process part. Clones are the same table.
#[derive(Debug, Clone, Default)]
pub struct Registry {}
