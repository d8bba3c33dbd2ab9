//! What a node's store wants done. Shells carry effects out in order.

use crate::event::{LinkId, ReadId, ScrubId, WriteId};
use snowskin_types::access::Extent;
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::Failure;
use snowskin_types::link::FromNode;
use snowskin_types::object::Shape;
use snowskin_types::time::Now;
use std::sync::Arc;

/// What a pinned read may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadGrant {
    /// Size and checksum of the whole object.
    pub shape: Shape,
    /// First byte and number of bytes of the object that are sent (the request, cut to the object).
    pub offset: u64,
    /// Bytes sent.
    pub len: u64,
    /// Where the *whole object* lies in the segment, in order; the pin covers all of it.
    pub extents: Arc<[Extent]>,
    /// Checksums of all pieces of the object.
    pub sums: Arc<PieceSums>,
}

/// Something worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Counter {
    /// Replicas committed.
    Committed,
    /// Writes answered with success.
    WritesAcked,
    /// Writes refused or broken.
    WritesFailed,
    /// Writes that waited for space.
    PutWaited,
    /// Writes that waited in vain.
    PutWaitFailed,
    /// Reads served.
    ReadsServed,
    /// Reads refused.
    ReadsRefused,
    /// Reads cut because their pin made no progress.
    PinsCut,
    /// Publishes sent again.
    PublishRetries,
    /// Publishes whose answer never came in their session.
    PublishAmbiguous,
    /// Retracts refused.
    RetractRefused,
    /// Replicas evicted.
    Evicted,
    /// Their bytes.
    EvictedBytes,
    /// Replicas retired by order.
    Retired,
    /// Sessions lost.
    SessionLost,
    /// Messages of a former session.
    Fenced,
    /// Stored bytes found damaged.
    ScrubBad,
    /// Reads and writes refused because the serving lease had ended.
    NotServing,
    /// Writes refused because their version had ended here before.
    OneShotRefused,
    /// Answers of the present session to numbers that no longer wait for one.
    AnswersLate,
    /// Absences not told because too many wait; the master asks again.
    AbsentsDropped,
    /// Ended versions forgotten early because too many are remembered.
    OneShotForgotten,
    /// Answers that do not fit what they answer.
    AnswersOdd,
}

/// An output of the core.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Effect {
    /// The writer's bytes go to these extents, in order. Ends with `Event::WriteEnd`.
    Grant {
        write: WriteId,
        extents: Arc<[Extent]>,
    },
    /// Answers a writer. For a write that was never granted, its bytes are to be thrown away. A write
    /// that was cut is answered after its `Event::WriteEnd`; one that ended `Broken`, or whose writer
    /// is gone, is not answered.
    Answer {
        write: WriteId,
        result: Result<(), Failure>,
    },
    /// Stop receiving the bytes of a granted write (it was retired); ends with `Event::WriteEnd`.
    CutWrite { write: WriteId },
    /// The read is pinned and may be sent. Ends with `Event::ReadEnd`.
    Serve { read: ReadId, grant: ReadGrant },
    /// The read is refused.
    Refuse { read: ReadId, failure: Failure },
    /// Stop sending (the pin's deadline passed); ends with `Event::ReadEnd`.
    CutRead { read: ReadId },
    /// Check these bytes against their checksums; ends with `Event::Scrubbed`.
    Scrub {
        scrub: ScrubId,
        shape: Shape,
        extents: Arc<[Extent]>,
        sums: Arc<PieceSums>,
    },
    /// Sends to the master on this link, in order.
    Send { link: LinkId, message: FromNode },
    /// Closes the connection to the master; a new one is opened after a back-off.
    Close { link: LinkId },
    /// The node serves until this moment (also to be written to the segment header).
    ServeUntil(Now),
    /// Counts.
    Count { counter: Counter, by: u64 },
}
