//! The bench on which end-to-end tests stand: real processes of the built `snowskin`, a proxy that can
//! slow, cut or swallow a link, and values that betray every wrong byte.
//!
//! Owns: starting and ending processes. Must never: be used outside tests.
//! Start reading at [`cluster`].
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it must be"
)]

pub mod calls;
pub mod client;
pub mod cluster;
pub mod http;
pub mod load;
pub mod output;
pub mod process;
pub mod proxy;
pub mod values;
pub mod wait;
