//! What can happen to the directory.

use snowskin_types::call::Request;
use snowskin_types::link::FromNode;

/// The shell's token for a request whose answer it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The shell's token for one connection of a node. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The core's token for a durable write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistId(pub u64);

/// An input of the core.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Event {
    /// A client asks; answered by exactly one `Effect::Reply`, unless abandoned first.
    Request { id: RequestId, request: Request },
    /// The client no longer waits (deadline or connection gone); what was begun goes on.
    Abandon { id: RequestId },
    /// A message of a node.
    Node { link: LinkId, message: FromNode },
    /// A node's connection ended.
    LinkLost { link: LinkId },
    /// A durable write ended; `done` is false when it failed.
    Persisted { id: PersistId, done: bool },
    /// Time has passed. To be fed every 100 ms or less, and at once after `Effect::Continue`.
    Tick,
}
