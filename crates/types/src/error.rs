//! Stable error codes: one meaning each, the same from the wire to every binding.

use crate::key::Key;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $retry:ident;)*) => {
        /// A stable error code. Codes are only ever added.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $name),* }

        impl Code {
            /// All codes, in the order of their definition.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];
            /// The number on the wire and in every binding.
            pub const fn number(self) -> i32 { match self { $(Code::$name => $number),* } }
            /// The stable upper-case name.
            pub const fn name(self) -> &'static str { match self { $(Code::$name => $text),* } }
            /// What a caller may do about it.
            pub const fn retry(self) -> Retry { match self { $(Code::$name => Retry::$retry),* } }
            /// Finds a code by its number; unknown numbers are internal errors.
            pub const fn from_number(number: i32) -> Code {
                match number { $($number => Code::$name,)* _ => Code::Internal }
            }
        }
    };
}

/// What a caller may do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The same call fails again.
    Never,
    /// The same call may succeed later.
    Same,
    /// Another replica may serve.
    OtherReplica,
    /// A fresh look-up may serve.
    AfterRefresh,
}

codes! {
    /// Something that should not happen; the message says what.
    Internal = -1, "INTERNAL_ERROR", Never;
    /// The destination is smaller than the object.
    BufferOverflow = -10, "BUFFER_OVERFLOW", Never;
    /// No such node or segment.
    SegmentNotFound = -101, "SEGMENT_NOT_FOUND", AfterRefresh;
    /// Another live node advertises the same address.
    SegmentAlreadyExists = -102, "SEGMENT_ALREADY_EXISTS", Same;
    /// The session is not known (any more).
    ClientNotFound = -103, "CLIENT_NOT_FOUND", AfterRefresh;
    /// No space within the time a put may wait.
    NoSpace = -200, "NO_AVAILABLE_HANDLE", Same;
    /// Peers speak incompatible protocol versions, or belong to different clusters.
    InvalidVersion = -300, "INVALID_VERSION", Never;
    /// The key is longer than allowed.
    InvalidKey = -400, "INVALID_KEY", Never;
    /// Bytes could not be written.
    WriteFail = -500, "WRITE_FAIL", Same;
    /// A value in the call is not allowed.
    InvalidParams = -600, "INVALID_PARAMS", Never;
    /// The caller may not do this (token).
    IllegalClient = -601, "ILLEGAL_CLIENT", Never;
    /// The write is of an ended reservation.
    InvalidWrite = -700, "INVALID_WRITE", AfterRefresh;
    /// The range lies outside the object.
    InvalidRead = -701, "INVALID_READ", Never;
    /// The replica is not readable yet.
    ReplicaNotReady = -703, "REPLICA_IS_NOT_READY", Same;
    /// No such object.
    ObjectNotFound = -704, "OBJECT_NOT_FOUND", Never;
    /// The key is taken.
    ObjectAlreadyExists = -705, "OBJECT_ALREADY_EXISTS", Never;
    /// A live lease protects the object.
    ObjectHasLease = -706, "OBJECT_HAS_LEASE", Same;
    /// The lease ended before the read.
    LeaseExpired = -707, "LEASE_EXPIRED", AfterRefresh;
    /// The owner does not hold this version (any more).
    ReplicaGone = -712, "REPLICA_IS_GONE", AfterRefresh;
    /// The object is being read or moved.
    ObjectReplicaBusy = -714, "OBJECT_REPLICA_BUSY", Same;
    /// The bytes could not be moved.
    TransferFail = -800, "TRANSFER_FAIL", OtherReplica;
    /// The bytes do not have their checksum.
    ChecksumMismatch = -801, "CHECKSUM_MISMATCH", OtherReplica;
    /// The peer could not be reached.
    RpcFail = -900, "RPC_FAIL", Same;
    /// The deadline passed.
    RpcTimeout = -901, "RPC_TIMEOUT", Same;
    /// Not possible in the current state (starting, draining, not serving).
    UnavailableInStatus = -1010, "UNAVAILABLE_IN_CURRENT_STATUS", Same;
    /// Not possible in this mode.
    UnavailableInMode = -1011, "UNAVAILABLE_IN_CURRENT_MODE", Never;
    /// Not supported.
    NotSupported = -1012, "NOT_SUPPORTED", Never;
    /// The state directory could not be written.
    PersistentFail = -1503, "PERSISTENT_FAIL", Same;
}

/// Where in an operation a failure arose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Asking the master for a placement.
    Reserve,
    /// Moving bytes to a node.
    Write,
    /// Making the replica visible, or taking it back.
    Publish,
    /// Asking the master for replicas, also those that a remove is about.
    Locate,
    /// Moving bytes from a node.
    Read,
    /// Checking bytes.
    Verify,
    /// The link to the master or a node.
    Session,
}

/// Figures behind a refusal, in bytes unless named otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Detail {
    /// Asked for.
    pub wanted: u64,
    /// Free now.
    pub free: u64,
    /// Largest that fits now, or ever (for sizes that can never fit).
    pub largest: u64,
    /// Held by leases.
    pub leased: u64,
    /// Held by pins and reads.
    pub pinned: u64,
    /// Held by puts that have not ended.
    pub unfinished: u64,
}

/// One failure of one item of a call, with all that its user needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The stable code.
    pub code: Code,
    /// A sentence that names what is wrong and what is allowed.
    pub message: String,
    /// The key it is about.
    pub key: Option<Key>,
    /// The peer it came from or is about.
    pub peer: Option<String>,
    /// Where it arose.
    pub stage: Stage,
    /// Figures behind it.
    pub detail: Option<Detail>,
}

impl Failure {
    /// Makes one without key, peer and figures.
    pub fn new(code: Code, stage: Stage, message: impl Into<String>) -> Self {
        Failure {
            code,
            message: message.into(),
            key: None,
            peer: None,
            stage,
            detail: None,
        }
    }

    /// Names the key.
    #[must_use]
    pub fn with_key(mut self, key: &Key) -> Self {
        self.key = Some(key.clone());
        self
    }

    /// Names the peer.
    #[must_use]
    pub fn with_peer(mut self, peer: impl Into<String>) -> Self {
        self.peer = Some(peer.into());
        self
    }

    /// Adds the figures.
    #[must_use]
    pub fn with_detail(mut self, detail: Detail) -> Self {
        self.detail = Some(detail);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}): {}",
            self.code.name(),
            self.code.number(),
            self.message
        )?;
        if let Some(key) = &self.key {
            write!(f, " [key {key}]")?;
        }
        if let Some(peer) = &self.peer {
            write!(f, " [peer {peer}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_found_again() {
        let mut numbers: Vec<_> = Code::ALL.iter().map(|c| c.number()).collect();
        let mut names: Vec<_> = Code::ALL.iter().map(|c| c.name()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            (numbers.len(), names.len()),
            (Code::ALL.len(), Code::ALL.len())
        );
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), *code);
        }
    }
}
