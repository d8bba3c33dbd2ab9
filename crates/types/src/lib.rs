//! The words every other crate speaks: names, versions, epochs, sizes, limits, error codes, checksums.
//!
//! Owns: the newtypes and the stable error codes. Must never: do I/O, read a clock, be async.
//! Start reading at [`version`] (the order of incarnations) and [`error`] (the stable codes).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod call;
pub mod checksum;
pub mod error;
pub mod id;
pub mod key;
pub mod limits;
pub mod link;
pub mod object;
pub mod policy;
pub mod time;
pub mod units;
pub mod version;

pub use error::{Code, Detail, Failure, Retry, Stage};
pub use id::{ClientId, ClusterId, Epoch, NodeId, Seq, Session, Term};
pub use key::{Key, KeyError, ObjectName, Tenant};
pub use time::{Millis, Now};
pub use version::Version;
