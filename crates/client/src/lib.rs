//! The client library: put, get, exists, remove and their batches.
//!
//! Owns: the planners of calls ([`plan`]), replica choice, deadlines and retries. Must never: keep
//! or touch a caller's buffer after a call was answered, trust a location without its owner's
//! consent, see the cores of master or node except through the joined and embedded shapes.
//! Start reading at [`plan`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod plan;
