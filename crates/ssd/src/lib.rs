//! The bucket log of one disk slot: what its bytes mean, and what is written, read and deleted when.
//!
//! Owns: the byte format ([`format`], docs/design/bucket-format.md), the planner of one slot ([`log`]),
//! recovery ([`recover`]). Must never: touch a file, a clock or a thread; delete a bucket before its
//! owner said that what it held is retracted; trust a length read from disk before it is bounded.
//! Start reading at [`event`] and [`effect`], then [`log`], then [`recover`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod effect;
pub mod event;
pub mod format;
pub mod log;
pub mod recover;
pub mod sizing;

pub use effect::Effect;
pub use event::Event;
pub use log::{Config, Log};
