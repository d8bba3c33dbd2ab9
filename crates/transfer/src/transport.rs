//! The seam between those who plan transfers and those who move bytes.
//!
//! A caller opens a [`Batch`], submits [`Operation`]s (one-sided reads and writes between local
//! memory and a peer), and collects [`Completion`]s by polling or waiting. Local memory comes from
//! `snowskin-memory`: borrowed slices, registered regions or a segment, each as a scatter list.
//!
//! **Quiet buffers.** Once an operation's completion has been returned, or it was cancelled, or its
//! batch was dropped, nothing touches its local memory any more. An implementation that moves bytes
//! outside of the calls on the batch must end that before it returns from them.
//!
//! **No forced threads.** Nothing here has to block except [`Batch::wait`]; a simulated transport
//! implements [`Batch::poll`] and lets its world move on between two calls.
//!
//! **Every operation ends.** It completes at the latest at its deadline, or when it made no progress
//! for [`Operation::stall`], with a failure that says whether another replica may serve.

use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::error::Failure;
use snowskin_types::id::Epoch;
use snowskin_types::limits;
use snowskin_types::object::{Place, Shape};
use snowskin_types::time::{Millis, Now};

/// A memory region that a peer has registered for one-sided access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u64);

/// A range of a peer's registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// Process life of the peer that registered it.
    pub epoch: Epoch,
    /// Which region.
    pub region: RegionId,
    /// First byte in it.
    pub offset: u64,
}

/// Where a write goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteTo {
    /// A new version of an object; complete once the peer has published it.
    Object(WriteRequest),
    /// A range of a region; complete once the peer has received and verified all bytes. One that fails or
    /// is cancelled may have changed any byte of the range.
    Range(RemoteRange),
}

/// Where a read comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// A version of an object, or a part of it; every piece is verified.
    Object(ReadRequest),
    /// A range of a region, as long as the local list.
    Range(RemoteRange),
}

/// One direction of movement and the local memory it uses.
#[derive(Debug)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Movement<'m> {
    /// Local `source` to the peer.
    Write {
        to: WriteTo,
        source: SourceSlices<'m>,
    },
    /// From the peer into local `target`, which must have room for all bytes that come.
    Read {
        from: ReadFrom,
        target: TargetSlices<'m>,
    },
}

impl Movement<'_> {
    /// Bytes of local memory that are pending.
    pub fn remaining(&self) -> u64 {
        match self {
            Movement::Write { source, .. } => source.remaining(),
            Movement::Read { target, .. } => target.remaining(),
        }
    }
}

/// What is asked of a transport.
#[derive(Debug)]
pub struct Operation<'m> {
    /// With whom.
    pub peer: Place,
    /// What moves, and where.
    pub movement: Movement<'m>,
    /// It has completed by then, one way or the other.
    pub deadline: Now,
    /// It fails when the peer made no progress for this long.
    pub stall: Millis,
}

impl<'m> Operation<'m> {
    /// An operation with the usual patience for a peer that makes no progress.
    pub fn new(peer: Place, movement: Movement<'m>, deadline: Now) -> Self {
        Operation {
            peer,
            movement,
            deadline,
            stall: limits::PROGRESS_TIMEOUT,
        }
    }
}

/// Names an operation within its batch; given out in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// A successful operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Bytes moved.
    pub bytes: u64,
    /// Reads of objects: size and checksum of the whole version, as its owner told. When the whole
    /// version was read the checksum has been verified, else only the sums of the pieces.
    pub shape: Option<Shape>,
}

/// The end of an operation. Its local memory is quiet and given back at the position that it had
/// when the operation was submitted, so that another replica can be tried with it.
#[derive(Debug)]
pub struct Completion<'m> {
    /// Which operation.
    pub id: OperationId,
    /// What it was, with its memory.
    pub operation: Operation<'m>,
    /// How it ended.
    pub result: Result<Done, Failure>,
}

/// Operations under way together. Dropping it cancels what has not completed.
pub trait Batch<'m> {
    /// Takes an operation; never blocks. Its completion, also that of a refusal, comes from
    /// [`Batch::poll`] or [`Batch::wait`].
    fn submit(&mut self, operation: Operation<'m>) -> OperationId;

    /// Moves what can be moved without blocking and appends what has completed.
    fn poll(&mut self, completions: &mut Vec<Completion<'m>>);

    /// As [`Batch::poll`], but returns only when at least one operation has completed, none is
    /// under way, or `until` has come. Deadlines of operations are kept meanwhile.
    fn wait(&mut self, until: Now, completions: &mut Vec<Completion<'m>>);

    /// Ends an operation without a result and gives it back; `None` when it is not under way.
    /// Whether the peer carries a cancelled write out is not known.
    fn cancel(&mut self, id: OperationId) -> Option<Operation<'m>>;

    /// Operations that have not completed.
    fn under_way(&self) -> usize;
}

/// Moves bytes between local memory and peers.
pub trait Transport: Send + Sync {
    /// Opens an empty batch. It belongs to one thread at a time; several may be open at once.
    fn batch<'m>(&self) -> Box<dyn Batch<'m> + 'm>;
}
