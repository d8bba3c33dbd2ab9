//! What the directory wants done. Shells carry effects out in order.

use crate::event::{LinkId, PersistId, RequestId};
use snowskin_types::call::Reply;
use snowskin_types::id::{ClusterId, Epoch, NodeId, Term};
use snowskin_types::link::ToNode;
use std::sync::Arc;

/// A change of the durable state, applied atomically.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Record {
    /// This node is known, in this process life. A mark and a 'forgotten' of another life end.
    Node {
        node: NodeId,
        epoch: Epoch,
        address: Arc<str>,
    },
    /// These nodes' memory content may be outdated since this term. The oldest term counts. A
    /// forgotten node that returns in its old life is marked, and known again by that.
    Mark {
        nodes: Vec<(NodeId, Epoch)>,
        term: Term,
    },
    /// The node's content has been reconciled.
    ClearMark { node: NodeId },
    /// The node is no longer known; whatever it still tells of this epoch is refused.
    Forget { node: NodeId, epoch: Epoch },
    /// The node has left in this epoch and does not return in it: nothing need be known of it.
    Left { node: NodeId, epoch: Epoch },
}

/// What a node record says after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    /// Who.
    pub node: NodeId,
    /// Last process life.
    pub epoch: Epoch,
    /// Last address.
    pub address: Arc<str>,
    /// Changed while away, since this term.
    pub mark: Option<Term>,
    /// Forgotten in this epoch.
    pub forgotten: bool,
}

/// The durable state at the start of a leadership, after the term was raised and stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The cluster.
    pub cluster: ClusterId,
    /// The new term.
    pub term: Term,
    /// What the former leaderships knew.
    pub nodes: Vec<KnownNode>,
}

/// Something worth counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Counter {
    /// Items asked by existence checks.
    ExistsItems,
    /// Items asked by look-ups.
    LocateItems,
    /// Look-ups with a result.
    LocateHits,
    /// Puts begun.
    Reserved,
    /// Puts answered 'exists'.
    ReserveExists,
    /// Puts refused.
    ReserveFailed,
    /// Puts that became visible.
    Published,
    /// Publishes refused.
    PublishRefused,
    /// Objects removed by users.
    Removed,
    /// Removes refused.
    RemoveRefused,
    /// Retracts granted (evicted objects' replicas).
    RetractGranted,
    /// Bytes of granted retracts.
    RetractGrantedBytes,
    /// Retracts refused.
    RetractRefused,
    /// Messages of a former session or number.
    Fenced,
    /// Claims that an inventory did not confirm.
    GhostRepaired,
    /// Existence checks past their cap.
    ExistsCap,
    /// Reports of missing replicas.
    ReportedGone,
    /// Reports of damaged replicas.
    ReportedBad,
    /// Placements that ended without bytes.
    PutDiscarded,
    /// Sessions begun.
    SessionsBegun,
    /// Sessions lost.
    SessionsLost,
    /// Times the master doubted its own clock.
    SelfDoubt,
    /// Requests abandoned by their clients.
    Abandoned,
    /// Nodes forgotten.
    NodesForgotten,
    /// Nodes that left in good order.
    NodesLeft,
    /// Writes that waited for space, as their nodes tell.
    PutWaited,
    /// Writes that waited for space in vain, as their nodes tell.
    PutWaitFailed,
    /// Bytes that nodes found without their checksum.
    NodeChecksumFailures,
}

/// An output of the core.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Effect {
    /// Answers a request.
    Reply { id: RequestId, reply: Reply },
    /// Sends to a node, in order with other messages of the link.
    Send { link: LinkId, message: ToNode },
    /// Closes a node's connection after what was sent.
    Close { link: LinkId },
    /// Writes durably, then feeds `Event::Persisted`.
    Persist { id: PersistId, record: Record },
    /// More work of a sliced job waits: feed `Event::Tick` soon, after other events.
    Continue,
    /// Counts.
    Count { counter: Counter, by: u64 },
}
