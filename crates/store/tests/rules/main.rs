//! The rules of `docs/design/protocol.md` that the node keeps, one test each.
#![allow(clippy::unwrap_used, reason = "test helpers")]

mod harness;
mod writes;
