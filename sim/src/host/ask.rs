//! What a client can be asked to do, and how that can end.

use snowskin_client::plan::put;
use snowskin_types::call::{Existing, Fault, PutMode};
use snowskin_types::{Failure, Millis, Version};

/// What a client is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Stores new bytes.
    Put {
        /// Which key.
        key: usize,
        /// Bytes.
        size: u64,
        /// What happens to a taken key.
        mode: PutMode,
        /// Copies.
        replicas: u32,
        /// Wished node, by its index.
        prefer: Option<usize>,
        /// How long it may take.
        timeout: Millis,
    },
    /// Reads, from a remembered location while its lease lasts.
    Get {
        /// Which key.
        key: usize,
        /// How long it may take.
        timeout: Millis,
    },
    /// Asks whether a key is readable.
    Exists {
        /// Which key.
        key: usize,
    },
    /// The same, and reads after a share of the lease, in 1/1000.
    ExistsThenGet {
        /// Which key.
        key: usize,
        /// Share of the lease to wait.
        share: u64,
    },
    /// Removes.
    Remove {
        /// Which key.
        key: usize,
        /// Also under a lease.
        force: bool,
    },
    /// Removes everything by force.
    RemoveAll,
    /// Reports a remembered replica.
    Report {
        /// Which key.
        key: usize,
        /// As what.
        fault: Fault,
    },
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Of a put.
    Put(Result<put::Stored, Failure>),
    /// Of a get: the version read.
    Get(Result<Version, Failure>),
    /// Of an existence check.
    Exists(Existing),
    /// Of a remove of one key or of all.
    Removed(Result<(), Failure>),
    /// Of a report, or of nothing to do.
    Noted,
}
