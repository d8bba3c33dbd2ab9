//! Running totals, kept by taking an entry out before it changes and adding it again afterwards.

use crate::directory::Directory;
use crate::object::{Ix, Owes};
use snowskin_types::call::NodeState;
use snowskin_types::id::NodeId;
use snowskin_types::link::NodeFigures;

/// Figures of the whole directory, cheap to read at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gauges {
    /// Readable objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Published replicas that can be read now.
    pub replicas: u64,
    /// Bytes under a live lease.
    pub leased_bytes: u64,
    /// Objects that are never evicted.
    pub hard_pins: u64,
    /// Objects that were put with a soft pin.
    pub soft_pins: u64,
    /// Puts that have not ended.
    pub unfinished: u64,
    /// Owners that have not confirmed the absence of an old version.
    pub obligations: u64,
    /// Keys remembered, with or without replicas.
    pub entries: u64,
    /// Answers that wait for owners.
    pub waiting: u64,
    /// Known nodes.
    pub alive: u64,
    /// Known nodes.
    pub suspect: u64,
    /// Known nodes.
    pub gone: u64,
    /// One for each known node.
    pub segments: Vec<SegmentGauge>,
}

/// The segment of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentGauge {
    /// Whose.
    pub node: NodeId,
    /// Where its data server listens.
    pub address: std::sync::Arc<str>,
    /// Bytes in use, as the node told last.
    pub used: u64,
    /// Bytes in all.
    pub capacity: u64,
    /// Seen as.
    pub state: NodeState,
    /// What it told of itself last; zero when it has not told yet.
    pub figures: NodeFigures,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) hard_pins: u64,
    pub(crate) soft_pins: u64,
    pub(crate) unfinished: u64,
    pub(crate) obligations: u64,
    /// Entries without a claim.
    pub(crate) unclaimed: u64,
}

fn shift(total: &mut u64, by: u64, add: bool) {
    *total = if add {
        total.saturating_add(by)
    } else {
        total.saturating_sub(by)
    };
}

impl Directory {
    /// Takes an entry out of the totals; to be followed by [`Self::count_in`].
    pub(crate) fn count_out(&mut self, ix: Ix) {
        self.tally(ix, false);
    }

    pub(crate) fn count_in(&mut self, ix: Ix) {
        self.tally(ix, true);
    }

    fn tally(&mut self, ix: Ix, add: bool) {
        let entry = self.table.entry(ix);
        let totals = &mut self.totals;
        if !entry.has_claims() {
            shift(&mut totals.unclaimed, 1, add);
            return;
        }
        shift(&mut totals.objects, 1, add);
        shift(&mut totals.bytes, entry.size, add);
        if let Some(attributes) = entry.attributes() {
            shift(&mut totals.hard_pins, u64::from(attributes.hard_pin), add);
            let soft = u64::from(attributes.soft_pin.is_some());
            shift(&mut totals.soft_pins, soft, add);
        }
        let sole = entry.claims().nth(1).is_none();
        for claim in entry.claims() {
            if let Some(life) = self.nodes.life_mut(claim.life) {
                shift(&mut life.replicas, 1, add);
                shift(&mut life.bytes, entry.size, add);
                if sole {
                    shift(&mut life.sole, 1, add);
                    shift(&mut life.sole_bytes, entry.size, add);
                }
            }
        }
    }

    /// Counts an obligation in or out. `last` tells whether it is the only placement of its version.
    pub(crate) fn tally_obligation(
        &mut self,
        life: u16,
        owes: Owes,
        size: u64,
        last: bool,
        add: bool,
    ) {
        shift(&mut self.totals.obligations, 1, add);
        if owes == Owes::Placed && last {
            shift(&mut self.totals.unfinished, 1, add);
        }
        if let Some(life) = self.nodes.life_mut(life) {
            shift(&mut life.obligations, 1, add);
            match owes {
                Owes::Placed => shift(&mut life.placed_bytes, size, add),
                Owes::Retiring => shift(&mut life.retiring, 1, add),
                Owes::Retracted => {}
            }
        }
    }

    /// Objects and bytes that can be read now: those held by gone nodes only are hidden.
    pub(crate) fn readable_totals(&self) -> (u64, u64) {
        let (mut objects, mut bytes) = (self.totals.objects, self.totals.bytes);
        for life in self.nodes.lives() {
            let node = self.nodes.get(life.node);
            let hidden = life.dead || node.is_none_or(|n| !n.readable());
            if hidden {
                objects = objects.saturating_sub(life.sole);
                bytes = bytes.saturating_sub(life.sole_bytes);
            }
        }
        (objects, bytes)
    }

    fn readable_replicas(&self) -> u64 {
        let readable = |node| self.nodes.get(node).is_some_and(|n| n.readable());
        let lives = self.nodes.lives().iter().filter(|life| !life.dead);
        lives
            .filter(|life| readable(life.node))
            .map(|life| life.replicas)
            .sum()
    }

    /// Figures for `/metrics`.
    pub fn gauges(&self) -> Gauges {
        let (objects, bytes) = self.readable_totals();
        let mut gauges = Gauges {
            objects,
            bytes,
            replicas: self.readable_replicas(),
            leased_bytes: self.leases.bytes(),
            hard_pins: self.totals.hard_pins,
            soft_pins: self.totals.soft_pins,
            unfinished: self.totals.unfinished,
            obligations: self.totals.obligations,
            entries: self.table.len() as u64,
            waiting: self.waits.len() as u64,
            ..Gauges::default()
        };
        for (_, node) in self.nodes.iter() {
            match node.state {
                NodeState::Alive => gauges.alive += 1,
                NodeState::Suspect => gauges.suspect += 1,
                NodeState::Gone => gauges.gone += 1,
            }
            gauges.segments.push(SegmentGauge {
                node: node.id,
                address: node.address.clone(),
                used: node.used,
                capacity: node.capacity,
                state: node.state,
                figures: node.figures().unwrap_or_default(),
            });
        }
        gauges
    }
}
