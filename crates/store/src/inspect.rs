//! The whole state at one moment, for checks and simulations. Walks everything: not for serving.

use crate::index::Replica;
use crate::replica::Damage;
use crate::session::Link;
use crate::store::Store;
use snowskin_types::access::Extent;
use snowskin_types::id::Session;
use snowskin_types::key::ObjectName;
use snowskin_types::time::Now;
use snowskin_types::version::Version;
use std::sync::Arc;

/// Everything that a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The session that runs.
    pub session: Option<Session>,
    /// It serves until this moment.
    pub serve_until: Now,
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes taken.
    pub used: u64,
    /// Writes that wait for space.
    pub waiting: usize,
    /// Bytes of versions that were retired while they were written; they go when the writes end.
    pub cut: u64,
    /// All versions that take bytes, these aside.
    pub replicas: Vec<ReplicaView>,
}

/// One version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaView {
    /// Of which object.
    pub name: ObjectName,
    /// Which.
    pub version: Version,
    /// Where it is in its life.
    pub state: ReplicaState,
    /// Its bytes.
    pub extents: Arc<[Extent]>,
    /// The directory has accepted it at some time.
    pub acked: bool,
    /// Reads and checks under way.
    pub pins: u32,
}

/// Where a version is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaState {
    /// Its bytes are being written.
    Filling,
    /// Served, not accepted by the directory in this session.
    Committed,
    /// Served and accepted.
    Published,
    /// Served; the directory was asked to let it go.
    Retracting,
    /// Found damaged and not served; the directory was asked to let it go.
    Damaged,
    /// Not served any more; the bytes go with the last pin.
    Draining,
}

impl ReplicaState {
    /// True when new reads are served.
    pub fn is_served(self) -> bool {
        matches!(
            self,
            ReplicaState::Committed | ReplicaState::Published | ReplicaState::Retracting
        )
    }
}

impl Store {
    /// Everything, as it is now, in the order of the index.
    pub fn inspect(&self) -> View {
        let mut replicas = Vec::new();
        for (_, slot) in (0..self.index.cells()).filter_map(|at| self.index.at(at)) {
            let state = match &slot.replica {
                Replica::Waiting | Replica::Moving => continue,
                Replica::Reserved(_) => ReplicaState::Filling,
                Replica::Committed(_) => ReplicaState::Committed,
                Replica::Published(_) => ReplicaState::Published,
                Replica::Retracting(r) if r.damage() == Damage::Sound => ReplicaState::Retracting,
                Replica::Retracting(_) => ReplicaState::Damaged,
                Replica::Retracted(_) => ReplicaState::Draining,
            };
            replicas.push(ReplicaView {
                name: slot.name.clone(),
                version: slot.version,
                state,
                extents: slot.extents.clone(),
                acked: slot.acked,
                pins: slot.pins,
            });
        }
        View {
            session: match self.link {
                Link::Live { session, .. } => Some(session),
                Link::Down | Link::Registering { .. } => None,
            },
            serve_until: self.serve_until,
            capacity: self.arena.capacity(),
            used: self.arena.used_bytes(),
            waiting: self.waiting_due.len(),
            cut: self.cut.values().map(|cut| cut.bytes).sum(),
            replicas,
        }
    }
}
