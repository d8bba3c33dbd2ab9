//! What a node and the master say to each other.
//!
//! Messages that change the directory are [`NodeItem`]s in numbered batches; the master applies a
//! batch only when its number is above the last one of the session and does not answer older ones.

use crate::call::Fault;
use crate::error::Failure;
use crate::id::{ClusterId, Epoch, NodeId, Seq, Session};
use crate::key::ObjectName;
use crate::object::{Attributes, Shape, Tier};
use crate::policy::ClusterPolicy;
use crate::time::Millis;
use crate::version::Version;
use std::sync::Arc;

/// A moment on the node's own clock, opaque to the master, which only echoes it: the node's
/// serving lease counts from the sending of what carried it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Stamp(pub u64);

/// Asks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Who.
    pub node: NodeId,
    /// Which process life.
    pub epoch: Epoch,
    /// Address of the data server, as clients reach it.
    pub address: Arc<str>,
    /// Host it runs on.
    pub host: Arc<str>,
    /// Segment size.
    pub capacity: u64,
    /// Largest object its segment can ever hold.
    pub largest: u64,
    /// Cluster it belonged to so far in this life, if any.
    pub cluster: Option<ClusterId>,
    /// Highest session it had in this life.
    pub last_session: Session,
    /// Replicas its inventory will tell.
    pub holds: u64,
    /// When it was sent, on the node's clock.
    pub stamp: Stamp,
}

/// One object of a numbered batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum NodeItem {
    /// The owner's index serves this version. `acked`: the master had accepted it before (maybe in
    /// another session); `inventory`: told because a session began.
    Publish {
        name: ObjectName,
        version: Version,
        shape: Shape,
        tier: Tier,
        attributes: Attributes,
        acked: bool,
        inventory: bool,
    },
    /// Asks to stop being named, so that the bytes can be reclaimed. `bad`: its bytes are damaged.
    Retract {
        name: ObjectName,
        version: Version,
        bad: bool,
    },
    /// The version is not here and never will be in this process life (a granted retract carried
    /// out, an order to retire obeyed, a write refused or aborted).
    Absent { name: ObjectName, version: Version },
    /// All replicas have been told and answered in this session.
    InventoryEnd,
}

/// The master's answer to one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemResult {
    /// Done: published, granted, noted.
    Ok,
    /// Publish only: visible, but the answer must wait (older owners retire, or grace); a further
    /// answer under the same number follows, and the item may be sent again.
    Pending,
    /// Publish only: an outdated version; an order to retire follows.
    Refused,
    /// Retract only: a lease runs this much longer.
    Leased(Millis),
    /// Retract only: a hard pin or a grace protects it; try again after this time.
    Held(Millis),
}

/// What a node measures of itself. Numbers of what was done count from the start of its process life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeFigures {
    /// Versions that its index serves to new reads.
    pub held: u64,
    /// Their payload bytes.
    pub held_bytes: u64,
    /// Reads under way, each of which pins a version.
    pub pins: u64,
    /// Reads begun.
    pub reads: u64,
    /// Writes that had to wait for space.
    pub put_waited: u64,
    /// Writes that waited for space in vain.
    pub put_wait_failed: u64,
    /// Bytes found without their checksum: sent by a writer, or stored.
    pub checksum_failures: u64,
}

/// Node to master.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum FromNode {
    /// First message of a link.
    Register(Register),
    /// Numbered changes.
    Batch {
        session: Session,
        seq: Seq,
        items: Vec<NodeItem>,
    },
    /// Answer to a ping.
    Pong {
        session: Session,
        nonce: u64,
        stamp: Stamp,
        used: u64,
        largest_free: u64,
        policy: Option<String>,
        figures: Option<NodeFigures>,
    },
    /// This life ends: it serves nothing any more and its memory goes. The master answers by closing the link.
    Leave { session: Session },
}

/// Master to node.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum ToNode {
    /// The session has begun; the node now sends its inventory. `stamp` echoes the registration's.
    Registered {
        session: Session,
        cluster: ClusterId,
        stamp: Stamp,
        serving: Millis,
        policy: ClusterPolicy,
    },
    /// No session; the link is closed after this. `retry`: worth another try after a back-off.
    Refused { failure: Failure, retry: bool },
    /// Results of some items of a batch: (index in the batch, result).
    Ack {
        session: Session,
        seq: Seq,
        results: Vec<(u32, ItemResult)>,
    },
    /// Stop serving these versions at once, confirm with `Absent`, reclaim when unpinned.
    Retire {
        session: Session,
        items: Vec<(ObjectName, Version)>,
    },
    /// A reader reported these: say `Publish` again if held and sound, `Absent` if not held,
    /// `Retract` (bad) if damaged.
    Verify {
        session: Session,
        items: Vec<(ObjectName, Version, Fault)>,
    },
    /// Asks for a pong, and confirms the last one: the serving lease counts from `confirmed`.
    Ping {
        session: Session,
        nonce: u64,
        confirmed: Stamp,
    },
    /// These objects lost a group member: evict them next.
    EvictNext {
        session: Session,
        items: Vec<(ObjectName, Version)>,
    },
}
