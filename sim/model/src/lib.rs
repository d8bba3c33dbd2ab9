//! An explicit-state model of the protocol between master, nodes and clients.
//!
//! Owns: the rules as switches, the world they act on, the promises checked in every reachable
//! state, and the standard runs whose figures stand in `docs/adr/0002-what-the-model-says.md`.
//! Must never: depend on a product crate, or be depended on by one; it models what they promise.
//! Start reading at `rules` (what can be dropped), then `state`, `actions`, `apply`, `receive`
//! and `properties`; `suite` holds the standard runs and `explore` runs them.

#![forbid(unsafe_code)]

pub mod actions;
pub mod apply;
pub mod explore;
pub mod properties;
pub mod receive;
pub mod reduce;
pub mod rules;
pub mod set;
pub mod state;
pub mod suite;
