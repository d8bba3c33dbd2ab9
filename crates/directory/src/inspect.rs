//! The whole state at one moment, for checks and simulations. Walks everything: not for serving.

use crate::directory::Directory;
use crate::event::LinkId;
use crate::node::Mark;
use crate::object::{LifeIx, Owes};
use snowskin_types::call::NodeState;
use snowskin_types::id::{Epoch, NodeId, Session, Term};
use snowskin_types::key::ObjectName;
use snowskin_types::time::Now;
use snowskin_types::version::Version;

/// Everything that the directory believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Leadership.
    pub term: Term,
    /// Nothing is evicted yet.
    pub in_grace: bool,
    /// All known nodes.
    pub nodes: Vec<NodeView>,
    /// All remembered keys, by their names.
    pub entries: Vec<EntryView>,
}

/// A known node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Who.
    pub node: NodeId,
    /// Its process life.
    pub epoch: Epoch,
    /// Its link.
    pub link: Option<LinkId>,
    /// Its session.
    pub session: Option<Session>,
    /// Seen as.
    pub state: NodeState,
    /// It has told its whole index in this session.
    pub inventoried: bool,
    /// It bears a mark, or one is being written.
    pub marked: bool,
}

/// A remembered key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryView {
    /// Which.
    pub name: ObjectName,
    /// Its current version; none after a remove.
    pub current: Version,
    /// Versions up to this one are removed for ever.
    pub floor: Version,
    /// End of its lease.
    pub leased_until: Now,
    /// Replicas of the current version in lives that are not known to be over.
    pub claims: Vec<ClaimView>,
    /// Owners of versions that no claim names, in such lives.
    pub obligations: Vec<ObligationView>,
    /// Answers that wait for these owners.
    pub waits: usize,
}

/// A published replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimView {
    /// Who.
    pub node: NodeId,
    /// In which process life.
    pub epoch: Epoch,
    /// A report hides it.
    pub hidden: bool,
}

/// A node that may still hold a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObligationView {
    /// Who.
    pub node: NodeId,
    /// In which process life.
    pub epoch: Epoch,
    /// Which version.
    pub version: Version,
    /// `placed`, `retracted` or `retiring`.
    pub owes: &'static str,
}

impl Directory {
    /// Everything, as it is now.
    pub fn inspect(&self) -> View {
        let nodes = self.nodes.iter().map(|(_, n)| NodeView {
            node: n.id,
            epoch: n.epoch,
            link: n.link,
            session: n.session,
            state: n.state,
            inventoried: n.inventoried,
            marked: n.mark != Mark::None,
        });
        let mut entries: Vec<EntryView> = (0..self.table.slots() as u32)
            .filter(|&ix| self.table.is_live(ix))
            .filter_map(|ix| {
                let entry = self.table.entry(ix);
                let claims = entry.claims().filter_map(|c| {
                    let (node, epoch) = self.living(c.life)?;
                    Some(ClaimView {
                        node,
                        epoch,
                        hidden: c.hidden(),
                    })
                });
                let obligations = entry.obligations().iter().filter_map(|o| {
                    let (node, epoch) = self.living(o.life)?;
                    Some(ObligationView {
                        node,
                        epoch,
                        version: o.version,
                        owes: match o.owes {
                            Owes::Placed => "placed",
                            Owes::Retracted => "retracted",
                            Owes::Retiring => "retiring",
                        },
                    })
                });
                Some(EntryView {
                    name: self.table.name(ix)?,
                    current: entry.version,
                    floor: entry.floor(),
                    leased_until: entry.lease(),
                    claims: claims.collect(),
                    obligations: obligations.collect(),
                    waits: entry.waits().len(),
                })
            })
            .collect();
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        View {
            term: self.term,
            in_grace: self.in_grace(),
            nodes: nodes.collect(),
            entries,
        }
    }

    /// The version that a look-up of this key would name, hidden replicas aside.
    pub fn current(&self, name: &ObjectName) -> Option<Version> {
        let entry = self.table.entry(self.table.find_name(name)?);
        let named = entry
            .claims()
            .any(|c| !c.hidden() && !self.nodes.is_dead(c.life));
        (named && !entry.version.is_none()).then_some(entry.version)
    }

    fn living(&self, life: LifeIx) -> Option<(NodeId, Epoch)> {
        let (_, node) = self.nodes.of_life(life)?;
        Some((node.id, self.nodes.life(life)?.epoch))
    }
}
