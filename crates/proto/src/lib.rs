//! The wire: messages, frames, the first frame each way, and what is frozen about them.
//!
//! Owns: every byte that crosses a socket between processes (`docs/design/wire.md` is the table).
//! Bytes become typed, checked values of `snowskin-types` here or are refused with a typed error;
//! nothing outside sees a raw message. Must never: panic or allocate beyond its bounds whatever
//! the input, do I/O beyond the blocking reader and writer it is handed a stream for.
//! Start reading at [`frame`], then [`message`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod access;
pub mod blocking;
mod call;
mod count;
mod engine;
pub mod error;
pub mod frame;
pub mod hello;
mod link;
pub mod message;
mod shared;

mod wire {
    //! Generated from `proto/*.proto`.
    #![allow(missing_docs, clippy::all, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/snowskin.v1.rs"));
}

pub use access::{
    RANGE_SUMS_MAX, RangeRead, RangeRequest, RangeSums, RangeWrite, ReadHead, WriteDone,
};
pub use engine::{
    ENGINE_REGIONS_MAX, EngineAccess, EngineDescription, EngineNotified, EngineNotify,
    EngineRegion, NOTIFY_MESSAGE_BYTES_MAX, NOTIFY_NAME_BYTES_MAX,
};
pub use error::{DecodeError, EncodeError};
