//! Which nodes a new replica goes to.

use crate::directory::Directory;
use crate::node::NodeIx;
use crate::object::LifeIx;
use snowskin_types::call::Reserve;
use snowskin_types::error::{Code, Detail, Failure, Stage};
use snowskin_types::policy::PlacementPolicy;

/// Random tries before all candidates are looked at.
const TRIES: usize = 8;
/// Nodes compared for their free share.
const SAMPLE: usize = 6;

/// The nodes that take new replicas, kept until a node changes.
#[derive(Debug)]
pub(crate) struct Candidates {
    nodes: Vec<NodeIx>,
    /// The largest object that any registered node can ever hold.
    largest: u64,
}

impl Directory {
    fn candidates(&mut self) -> Candidates {
        self.placeable.take().unwrap_or_else(|| {
            let all = || self.nodes.iter();
            Candidates {
                nodes: all()
                    .filter(|(_, n)| n.placeable())
                    .map(|(ix, _)| ix)
                    .collect(),
                largest: all().map(|(_, n)| n.largest).max().unwrap_or(0),
            }
        })
    }

    /// Chooses lives for up to `item.replicas` replicas on distinct nodes: at least one.
    pub(crate) fn choose(&mut self, item: &Reserve) -> Result<Vec<LifeIx>, Failure> {
        let candidates = self.candidates();
        let chosen = self.choose_from(&candidates, item);
        self.placeable = Some(candidates);
        let lives = chosen?;
        let lives = lives.into_iter().filter_map(|ix| self.nodes.get(ix));
        Ok(lives.map(|n| n.life).collect())
    }

    fn choose_from(
        &mut self,
        candidates: &Candidates,
        item: &Reserve,
    ) -> Result<Vec<NodeIx>, Failure> {
        if candidates.largest > 0 && item.size > candidates.largest {
            let message = format!(
                "an object of {} bytes can never fit; the largest possible one has {} bytes",
                item.size, candidates.largest
            );
            let detail = Detail {
                wanted: item.size,
                largest: candidates.largest,
                ..Detail::default()
            };
            return Err(
                Failure::new(Code::InvalidParams, Stage::Reserve, message).with_detail(detail)
            );
        }
        let mut chosen: Vec<NodeIx> = Vec::with_capacity(1);
        for id in &item.preferred {
            if let Some(ix) = self.nodes.find(*id)
                && chosen.len() < item.replicas as usize
                && self.suits(ix, item, &chosen)
            {
                chosen.push(ix);
            }
        }
        while chosen.len() < item.replicas as usize {
            match self.draw_one(candidates, item, &chosen) {
                Some(ix) => chosen.push(ix),
                None => break,
            }
        }
        if chosen.is_empty() {
            return Err(self.no_space(candidates, item));
        }
        Ok(chosen)
    }

    fn suits(&self, ix: NodeIx, item: &Reserve, chosen: &[NodeIx]) -> bool {
        let Some(node) = self.nodes.get(ix) else {
            return false;
        };
        node.placeable()
            && node.largest >= item.size
            && !chosen.contains(&ix)
            && !item.avoid.contains(&node.id)
    }

    fn draw_one(
        &mut self,
        candidates: &Candidates,
        item: &Reserve,
        chosen: &[NodeIx],
    ) -> Option<NodeIx> {
        let all = &candidates.nodes;
        let mut best: Option<(NodeIx, f64)> = None;
        let mut seen = 0;
        for _ in 0..TRIES {
            let Some(ix) = all.get(self.draw.below(all.len())).copied() else {
                break;
            };
            if !self.suits(ix, item, chosen) {
                continue;
            }
            if self.config.placement == PlacementPolicy::Random {
                return Some(ix);
            }
            let share = self.free_share(ix);
            if best.is_none_or(|(_, s)| share > s) {
                best = Some((ix, share));
            }
            seen += 1;
            if seen == SAMPLE {
                break;
            }
        }
        if let Some((ix, _)) = best {
            return Some(ix);
        }
        let start = self.draw.below(all.len());
        let mut rest = all[start..].iter().chain(&all[..start]).copied();
        rest.find(|ix| self.suits(*ix, item, chosen))
    }

    /// Free share of a node's memory, puts under way counted as used.
    fn free_share(&self, ix: NodeIx) -> f64 {
        let Some(node) = self.nodes.get(ix).filter(|n| n.capacity > 0) else {
            return 0.0;
        };
        let placed = self.nodes.life(node.life).map_or(0, |l| l.placed_bytes);
        let used = node.used.saturating_add(placed).min(node.capacity);
        (node.capacity - used) as f64 / node.capacity as f64
    }

    fn no_space(&self, candidates: &Candidates, item: &Reserve) -> Failure {
        let nodes = candidates.nodes.iter();
        let nodes: Vec<_> = nodes.filter_map(|ix| self.nodes.get(*ix)).collect();
        let message = if nodes.is_empty() {
            "no node takes new objects now".to_owned()
        } else {
            format!(
                "none of {} nodes can take an object of {} bytes here ({} are to be avoided)",
                nodes.len(),
                item.size,
                item.avoid.len()
            )
        };
        let detail = Detail {
            wanted: item.size,
            free: nodes
                .iter()
                .map(|n| n.capacity.saturating_sub(n.used))
                .sum(),
            largest: nodes.iter().map(|n| n.largest_free).max().unwrap_or(0),
            leased: self.leases.bytes(),
            ..Detail::default()
        };
        Failure::new(Code::NoSpace, Stage::Reserve, message).with_detail(detail)
    }
}
