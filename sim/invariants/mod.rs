//! What must always be true, one file each. Each names its scope: when, and for whom, it holds.
//!
//! `observe` is called for everything a core takes in or gives out, `sweep` for the whole state at
//! regular moments.

use crate::packet::Proc;
use crate::world::World;
use snowskin_directory::effect::Record;
use snowskin_directory::event::RequestId;
use snowskin_types::call::Request;
use snowskin_types::{Epoch, NodeId, ObjectName, Version};

pub mod acked_survives_its_promise;
pub mod bytes_accounted;
pub mod directory_subset_of_nodes;
pub mod epoch_monotonic;
pub mod lease_blocks_reclaim;
pub mod offload_keeps_bytes;
pub mod one_session_per_node;
pub mod published_implies_committed;
pub mod read_returns_a_put;
pub mod removed_stays_removed;
pub mod retracted_before_reclaimed;
pub mod write_is_one_shot;

/// Says what is wrong.
pub type Verdict = Result<(), String>;

/// Something that a core took in or gave out, or that befell a process.
#[derive(Debug)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Seen<'a> {
    /// The master's process began; nothing has reached it yet.
    MasterStarted,
    /// The master's process ended.
    MasterDied,
    /// A node's process began.
    NodeStarted { node: usize },
    /// A node's process is about to end.
    NodeDied { node: usize },
    /// A request reached the master.
    Request {
        id: RequestId,
        client: usize,
        call: u64,
        request: &'a Request,
    },
    /// The directory is about to take this in.
    DirectoryEvent(&'a snowskin_directory::event::Event),
    /// The directory wants this done.
    DirectoryEffect(&'a snowskin_directory::effect::Effect),
    /// The master's disk has this.
    Persisted { record: &'a Record },
    /// A store is about to take this in.
    StoreEvent {
        node: usize,
        event: &'a snowskin_store::event::Event,
    },
    /// A store wants this done.
    StoreEffect {
        node: usize,
        effect: &'a snowskin_store::effect::Effect,
    },
    /// A client's call ended.
    Ended {
        client: usize,
        outcome: &'a crate::host::ask::Outcome,
    },
}

/// The whole state of the cores at one moment.
#[derive(Debug)]
pub struct State {
    /// The directory, while the master lives.
    pub directory: Option<snowskin_directory::inspect::View>,
    /// The stores of living nodes.
    pub stores: Vec<Option<snowskin_store::inspect::View>>,
}

impl State {
    /// Looks at all cores.
    pub fn of(world: &World) -> Self {
        State {
            directory: world.master.core.as_ref().map(|core| core.inspect()),
            stores: world
                .nodes
                .iter()
                .map(|node| node.core.as_ref().map(|core| core.inspect()))
                .collect(),
        }
    }

    /// True when the running process with this epoch can serve a version.
    pub fn serves(
        &self,
        world: &World,
        node: NodeId,
        epoch: Epoch,
        name: &ObjectName,
        version: Version,
    ) -> Option<bool> {
        let at = world
            .nodes
            .iter()
            .position(|n| n.id == node && n.epoch == epoch)?;
        let view = self.stores.get(at)?.as_ref()?;
        Some(
            view.replicas
                .iter()
                .any(|r| r.version == version && r.name == *name && r.state.is_served()),
        )
    }
}

/// A property of the whole cluster.
pub trait Invariant {
    /// Its name, that of its file.
    fn name(&self) -> &'static str;

    /// Looks at one thing that happened.
    fn observe(&mut self, _world: &World, _seen: &Seen<'_>) -> Verdict {
        Ok(())
    }

    /// Looks at the whole state.
    fn sweep(&mut self, _world: &World, _state: &State) -> Verdict {
        Ok(())
    }
}

/// All of them.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<published_implies_committed::PublishedImpliesCommitted>::default(),
        Box::<retracted_before_reclaimed::RetractedBeforeReclaimed>::default(),
        Box::<lease_blocks_reclaim::LeaseBlocksReclaim>::default(),
        Box::<read_returns_a_put::ReadReturnsAPut>::default(),
        Box::<directory_subset_of_nodes::DirectorySubsetOfNodes>::default(),
        Box::<bytes_accounted::BytesAccounted>::default(),
        Box::<epoch_monotonic::EpochMonotonic>::default(),
        Box::<one_session_per_node::OneSessionPerNode>::default(),
        Box::<offload_keeps_bytes::OffloadKeepsBytes>::default(),
        Box::<acked_survives_its_promise::AckedSurvivesItsPromise>::default(),
        Box::<removed_stays_removed::RemovedStaysRemoved>::default(),
        Box::<write_is_one_shot::WriteIsOneShot>::default(),
    ]
}

/// How a node is named in messages.
fn who(world: &World, node: NodeId) -> String {
    match world.nodes.iter().position(|n| n.id == node) {
        Some(index) => Proc::Node(index).to_string(),
        None => format!("the unknown node {node}"),
    }
}
