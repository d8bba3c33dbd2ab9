//! What can happen to a node's store.

use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::link::ToNode;

/// The shell's token for a write under way. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// The shell's token for a read under way. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// The core's token for a check of stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScrubId(pub u64);

/// The shell's token for one connection to the master. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How the bytes of a granted write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// All bytes are in their extents and have their checksums.
    Sound,
    /// All bytes came, a checksum is wrong.
    Corrupt,
    /// The connection broke or the writer gave up; nothing touches the extents any more.
    Broken,
}

/// An input of the core.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Event {
    /// A writer asks for space. Leads to `Grant` (maybe later) or to `Answer`.
    WriteStart {
        write: WriteId,
        request: WriteRequest,
    },
    /// The bytes of a granted write have ended. The extents are the core's again.
    WriteEnd { write: WriteId, filled: Filled },
    /// The writer of a write that waits for space, or for its publish, went away; no answer is wanted.
    WriterGone { write: WriteId },
    /// A reader asks. Leads at once to `Serve` or to `Refuse`.
    ReadStart { read: ReadId, request: ReadRequest },
    /// Bytes of a served read moved on.
    ReadProgress { read: ReadId },
    /// A served read ended; nothing touches the extents any more.
    ReadEnd { read: ReadId },
    /// A check of stored bytes ended; nothing touches the extents any more.
    Scrubbed { scrub: ScrubId, sound: bool },
    /// A connection to the master opened.
    LinkUp { link: LinkId },
    /// A message of the master.
    Master { link: LinkId, message: ToNode },
    /// The connection to the master ended.
    LinkLost { link: LinkId },
    /// Time has passed. To be fed every 20 ms or less while anything waits, else every 100 ms.
    Tick,
}
