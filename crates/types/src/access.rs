//! What a client asks of a node's data server.

use crate::checksum::PieceSums;
use crate::id::Epoch;
use crate::key::ObjectName;
use crate::object::Attributes;
use crate::time::Millis;
use crate::version::Version;

/// A run of bytes of a segment or an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Asks to store one version's bytes, which follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest {
    /// Process life of the node it is meant for.
    pub epoch: Epoch,
    /// Name.
    pub name: ObjectName,
    /// Incarnation given by the master.
    pub version: Version,
    /// Bytes.
    pub size: u64,
    /// Checksums of the pieces.
    pub sums: PieceSums,
    /// Kept with the object.
    pub attributes: Attributes,
    /// Time the caller will still wait; the node waits for space no longer than this and its own
    /// `--put-wait`.
    pub patience: Millis,
}

/// Asks for bytes of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Process life of the node it is meant for.
    pub epoch: Epoch,
    /// Name.
    pub name: ObjectName,
    /// Incarnation told by the master.
    pub version: Version,
    /// First byte.
    pub offset: u64,
    /// Bytes; `u64::MAX` means up to the end.
    pub len: u64,
}
