//! The rules of `docs/design/protocol.md` that the node keeps, one test each.
#![allow(clippy::unwrap_used, reason = "test helpers")]

mod evict;
mod harness;
#[cfg(known_bugs)]
mod planted;
mod publish;
mod random;
mod reads;
mod retire;
mod session;
mod writes;
