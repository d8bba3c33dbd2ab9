//! Transfers: one-sided reads and writes between local memory and peers, and how TCP carries them.
//!
//! Owns: the [`transport::Transport`] seam, its TCP implementation for clients, the data server
//! that nodes put in front of their segment, and the register of memory that peers may use by range. Must never: decide what may be read or written (the
//! node's store does, behind `tcp::endpoint`), touch local memory outside of the calls its callers
//! make, or wait without a deadline. Start reading at [`transport`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod regions;
pub mod tcp;
pub mod transport;
