//! The transfer engine: peers named `host:port` read and write each other's registered memory.
//!
//! Owns: sessions between engines, batches of one-sided transfers by absolute address, probes and
//! notifications. Must never: know the store or Python, touch memory outside of registered regions of
//! a peer, or wait without a deadline. Start reading at [`Engine`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// An engine of this process. Clones are the same engine.
#[derive(Debug, Clone, Default)]
pub struct Engine {}
