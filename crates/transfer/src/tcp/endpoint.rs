//! What the data server asks of the node it stands in front of.
//!
//! The server moves bytes and checks checksums; whether a read or write may happen, where its bytes are
//! and when they may be reused is the node's to say. Tickets carry the right to touch extents: the
//! server ends or drops a ticket only when nothing of it touches the segment any more, whatever
//! happened (a broken connection, a cut, a shutdown).

use crate::regions::Regions;
use snowskin_memory::segment::Segment;
use snowskin_runtime::spawn::Cancel;
use snowskin_types::access::{Extent, ReadRequest, WriteRequest};
use snowskin_types::checksum::PieceSums;
use snowskin_types::error::Failure;
use snowskin_types::object::Shape;
use std::future::Future;
use std::sync::Arc;

/// How the bytes of a granted write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// All bytes are in their extents and have their checksums.
    Sound,
    /// All bytes came, a checksum is wrong.
    Corrupt,
    /// The connection broke, the writer gave up, or the write was cut.
    Broken,
}

/// What a pinned read may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadGrant {
    /// Size and checksum of the whole version.
    pub shape: Shape,
    /// First byte of the object that is sent.
    pub offset: u64,
    /// Bytes sent, at least one.
    pub len: u64,
    /// Where the whole object lies in the segment, in order.
    pub extents: Arc<[Extent]>,
    /// Checksums of all pieces of the object.
    pub sums: Arc<PieceSums>,
}

/// A granted write. Dropping it without [`WriteTicket::end`] counts as [`Filled::Broken`].
pub trait WriteTicket: Send + Sync + 'static {
    /// Where the bytes go, in order; as many as the request's size.
    fn extents(&self) -> Arc<[Extent]>;

    /// Cancelled when the write is to stop early (it was retired).
    fn cut(&self) -> Cancel;

    /// Tells that nothing touches the extents any more, and waits for the writer's answer: for sound
    /// bytes that the version has been published. The server bounds the wait by the connection's life
    /// only, so the node must answer in the end.
    ///
    /// # Cancellation
    /// Dropping the future means that the writer has gone and wants no answer; the write goes on.
    fn end(self, filled: Filled) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The node's word on a write that is about to come.
#[derive(Debug)]
pub enum WriteStart<W> {
    /// The bytes go to the ticket's extents.
    Granted(W),
    /// The answer is known without the bytes, which are thrown away: a refusal, or a success
    /// because this version is here already.
    Answered(Result<(), Failure>),
}

/// A pinned read. Dropping it unpins: nothing touches the extents any more.
pub trait ReadTicket: Send + Sync + 'static {
    /// What may be sent.
    fn grant(&self) -> &ReadGrant;

    /// Cancelled when the read is to stop early (its pin made no progress for too long).
    fn cut(&self) -> Cancel;

    /// Told now and then (about once a second) while bytes move.
    fn progress(&self);
}

/// A node's side of the data server.
pub trait Endpoint: Send + Sync + 'static {
    /// See [`WriteTicket`].
    type Write: WriteTicket;
    /// See [`ReadTicket`].
    type Read: ReadTicket;

    /// The memory that extents are in.
    fn segment(&self) -> &Segment;

    /// Whether the server compares the bytes of writes with their checksums. Without it a write whose
    /// bytes all came counts as sound; readers verify in any case.
    fn verifies_writes(&self) -> bool {
        true
    }

    /// Asks for space for one version. May wait for space, no longer than the request's patience.
    ///
    /// # Cancellation
    /// Dropping the future means that the writer has gone.
    fn write_start(
        &self,
        request: WriteRequest,
    ) -> impl Future<Output = WriteStart<Self::Write>> + Send;

    /// Asks for bytes of one version. Epoch, version and range are checked here; nothing waits.
    ///
    /// # Cancellation
    /// Dropping the future unpins.
    fn read_start(
        &self,
        request: ReadRequest,
    ) -> impl Future<Output = Result<Self::Read, Failure>> + Send;

    /// Memory that peers may read and write by range; without any by default. The segment of
    /// [`Endpoint::segment`] is never served this way, even if it is registered.
    fn regions(&self) -> Option<&Regions> {
        None
    }

    /// Told when the server found that stored bytes do not have their checksum, so that the owner checks them.
    fn found_damaged(&self, request: &ReadRequest);
}
