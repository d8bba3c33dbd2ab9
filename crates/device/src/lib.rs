//! Memory that engines name by address: where it lives, who may touch it, and how it is copied.
//!
//! Owns: the table of registered memory ([`Registry`]), the decision between host and device memory,
//! the vendors' drivers, and staging. Must never: let the processor touch an address that was not
//! shown to be mapped host memory, initialise a vendor's driver that the process does not use already,
//! or keep memory claimed past the call that uses it.
//!
//! **What is promised by whom.** Registered memory was mapped when it was registered; the engine
//! promises to keep it so until it unregisters it, and is asked about again before each operation, as
//! far as that costs little (`snowskin_memory::probe` tells how far). Memory that was not registered is never touched by
//! the processor but for mapped files of devices, which the kernel cannot copy: the kernel or a driver
//! copies it, and a bad address is an error.
//!
//! Start reading at [`Registry`], then `resolve` (runs to regions), `carry` (the copies), [`driver`].
#![warn(missing_docs)]

mod carry;
pub mod driver;
mod error;
mod kernel;
mod maps;
mod moves;
mod registry;
mod resolve;
mod staging;
mod table;
mod users;

pub use driver::{Drivers, Family};
pub use error::DeviceError;
pub use moves::{Gather, Scatter};
pub use registry::{Config, Counts, Kind, Region, Registry, Run};
