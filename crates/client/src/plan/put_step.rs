//! The words of a plan of puts: what is asked for, what is to be done, what happened.

use super::{CallId, Ticket};
use snowskin_types::access::WriteRequest;
use snowskin_types::call::{Cancelled, Keys, PutMode, Reserve, Reserved};
use snowskin_types::checksum::{PieceSums, piece_count};
use snowskin_types::limits::{OBJECT_BYTES_MAX, REPLICAS_MAX};
use snowskin_types::object::{Attributes, Place};
use snowskin_types::{Code, Failure, Key, NodeId, Now, Stage, Version};

/// What one item asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutItem {
    /// Under which name.
    pub key: Key,
    /// Bytes.
    pub size: u64,
    /// Checksums of their pieces.
    pub sums: PieceSums,
    /// What happens to a taken key.
    pub mode: PutMode,
    /// Copies wanted.
    pub replicas: u32,
    /// Kept with the object.
    pub attributes: Attributes,
    /// Wished nodes, in order.
    pub preferred: Vec<NodeId>,
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is readable.
    Written {
        /// Its incarnation.
        version: Version,
        /// Places that published it; at least this many.
        replicas: u32,
    },
    /// The key was taken, nothing was stored.
    Exists {
        /// By this incarnation.
        version: Version,
        /// By a put that has not ended.
        unfinished: bool,
    },
}

/// What the runner is to do next, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Step {
    /// Ask the master for placements; answer with [`Event::Reserved`].
    Reserve {
        call: CallId,
        keys: Keys,
        items: Vec<Reserve>,
    },
    /// Write the source of `item` to a place; answer with [`Event::Written`].
    Write {
        ticket: Ticket,
        item: usize,
        place: Place,
        request: WriteRequest,
    },
    /// Give versions up; answer with [`Event::Cancelled`], no later than `until`.
    Cancel {
        call: CallId,
        keys: Keys,
        versions: Vec<Version>,
        until: Now,
    },
    /// Break this write off; its source must not be read any more when the call returns.
    Abort { ticket: Ticket },
    /// The item is finished.
    Done {
        item: usize,
        outcome: Result<Stored, Failure>,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Event {
    /// Begin.
    Start,
    /// Answer to a reservation: table of places and one item per key.
    Reserved {
        call: CallId,
        reply: Result<(Vec<Place>, Vec<Reserved>), Failure>,
    },
    /// Writes that ended; those that ended together are best told together.
    Written(Vec<(Ticket, Result<(), Failure>)>),
    /// Answer to a cancel.
    Cancelled {
        call: CallId,
        reply: Result<Vec<Cancelled>, Failure>,
    },
    /// Time passed; wanted at [`Put::wake`].
    Tick,
}

impl PutItem {
    /// Refuses what can never be stored.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let message = if self.size == 0 {
            "the object has zero bytes; at least one is needed".to_owned()
        } else if self.size > OBJECT_BYTES_MAX {
            format!(
                "the object has {} bytes; allowed are at most {OBJECT_BYTES_MAX}",
                self.size
            )
        } else if self.replicas == 0 || self.replicas as usize > REPLICAS_MAX {
            format!(
                "{} replicas were asked for; allowed are 1 to {REPLICAS_MAX}",
                self.replicas
            )
        } else if self.sums.0.len() as u64 != piece_count(self.size) {
            format!(
                "{} piece checksums were given for {} pieces",
                self.sums.0.len(),
                piece_count(self.size)
            )
        } else {
            return Ok(());
        };
        Err(Failure::new(Code::InvalidParams, Stage::Reserve, message).with_key(&self.key))
    }
}
