//! Identities of processes and of the order between them.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);
    };
}

number!(
    /// A node's lasting identity: derived from the address it advertises, so that a process
    /// restarted on its old port is the same node with a new [`Epoch`].
    NodeId(u64)
);
number!(
    /// One process life of a node: validity of its memory. Every read, write and cached location
    /// carries it; a mismatch means the bytes are gone, never that they are somebody else's.
    Epoch(u64)
);
number!(
    /// One leadership of the master; raised durably before it serves.
    Term(u32)
);
number!(
    /// Position of a directory-changing message within its session.
    Seq(u64)
);
number!(
    /// One client process, for accounting and diagnosis only.
    ClientId(u64)
);
number!(
    /// One cluster: a master's state directory and what registered with it.
    ClusterId(u64)
);

impl NodeId {
    /// Derives the id from the advertised `host:port`.
    pub fn from_address(address: &str) -> Self {
        NodeId(crate::checksum::crc64(address.as_bytes()))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Order of directory messages: which registration of a node with which leadership. A reconnect or
/// a failover changes only the session, so locations stay good.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Session {
    /// Leadership that granted it.
    pub term: Term,
    /// Counter within the term, starting at 1.
    pub n: u64,
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term.0, self.n)
    }
}
