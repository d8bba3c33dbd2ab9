//! The pass over the table, in slices: clears what dead processes held, what an inventory did not
//! confirm and what needs no remembering, and repeats orders to retire to nodes that came back.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::node::{Mark, NodeIx};
use crate::object::{Ix, LifeIx, Owes};
use crate::waits::PERSIST_RETRY;
use snowskin_types::limits::SLICE_ITEMS;
use snowskin_types::version::Version;

/// What one pass settles at its end.
#[derive(Debug, Default)]
struct Pass {
    at: Ix,
    /// Lives that were dead when the pass began.
    dead: Vec<LifeIx>,
    /// Nodes whose orders are repeated, each with its life and generation.
    resend: Vec<(NodeIx, LifeIx, u8)>,
    /// Lives whose inventory was complete when the pass began, with the generation that confirmed.
    confirmed: Vec<(LifeIx, u8)>,
    /// Lives whose sessions never got to an inventory for so long that their count must start anew.
    aged: Vec<LifeIx>,
}

#[derive(Debug, Default)]
pub(crate) struct Sweeper {
    wanted: bool,
    pass: Option<Pass>,
}

impl Sweeper {
    /// Asks for a full pass that begins later than now.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    pub(crate) fn has_work(&self) -> bool {
        self.wanted || self.pass.is_some()
    }
}

/// Sessions without an inventory after which a life's count is started anew.
const AGED: u8 = 128;

impl Directory {
    fn begin_pass(&mut self) -> Pass {
        self.sweeper.wanted = false;
        let mut pass = Pass::default();
        for (ix, life) in self.nodes.lives().iter().enumerate() {
            if life.dead && life.node != NodeIx::MAX {
                pass.dead.push(ix as LifeIx);
            }
        }
        for (ix, node) in self.nodes.iter() {
            let generation = self.nodes.life(node.life).map_or(0, |l| l.generation);
            if node.session.is_some() && node.resend {
                pass.resend.push((ix, node.life, generation));
            }
            if node.session.is_some() && node.inventoried {
                pass.confirmed.push((node.life, generation));
            }
            let swept = self.nodes.life(node.life).map_or(0, |l| l.swept);
            if node.session.is_none() && generation.wrapping_sub(swept) > AGED {
                pass.aged.push(node.life);
            }
        }
        pass
    }

    /// One slice of the pass.
    pub(crate) fn sweep_slice(&mut self) {
        let mut pass = match self.sweeper.pass.take() {
            Some(pass) => pass,
            None if self.sweeper.wanted => self.begin_pass(),
            None => return,
        };
        let end = self.table.slots();
        let mut left = SLICE_ITEMS;
        while left > 0 && (pass.at as usize) < end {
            if self.table.is_live(pass.at) {
                self.sweep_entry(&pass, pass.at);
            }
            pass.at += 1;
            left -= 1;
        }
        if (pass.at as usize) < end {
            self.sweeper.pass = Some(pass);
        } else {
            self.end_pass(pass);
        }
    }

    /// Claims of unfinished sessions all count as of the last one that was swept.
    fn age_entry(&mut self, life: LifeIx, ix: Ix) {
        let Some((swept, current)) = self.nodes.life(life).map(|l| (l.swept, l.generation)) else {
            return;
        };
        if let Some(claim) = self.table.entry_mut(ix).claim_mut(life)
            && claim.generation != current
        {
            claim.generation = swept;
        }
    }

    fn sweep_entry(&mut self, pass: &Pass, ix: Ix) {
        for life in &pass.aged {
            self.age_entry(*life, ix);
        }
        let mut touched = false;
        let entry = self.table.entry(ix);
        let mut drop: Vec<(LifeIx, bool)> = Vec::new();
        for claim in entry.claims() {
            let confirmed = pass.confirmed.iter().find(|(l, _)| *l == claim.life);
            if self.nodes.is_dead(claim.life) {
                drop.push((claim.life, false));
            } else if let Some((life, generation)) = confirmed
                && claim.generation != *generation
                && self.nodes.life(*life).map(|l| l.generation) == Some(*generation)
            {
                drop.push((claim.life, true));
            }
        }
        for (life, ghost) in drop {
            self.drop_claim(ix, life);
            self.count(Counter::GhostRepaired, u64::from(ghost));
            touched = true;
        }
        let all = self.table.entry(ix).obligations().to_vec();
        for o in all {
            if self.nodes.is_dead(o.life) {
                self.release(ix, o.life, o.version);
                touched = true;
            } else if o.owes == Owes::Retiring {
                if pass.resend.iter().any(|(_, life, _)| *life == o.life) && o.since <= self.now {
                    self.order(ix, o.life, o.version, self.now);
                }
            } else if o.owes == Owes::Retracted {
                // The inventory did not tell it again: the bytes are gone, or it will say so.
                let told = pass.confirmed.iter().find(|(l, _)| *l == o.life);
                if told.is_some_and(|(_, g)| o.generation != *g) {
                    self.must_retire(ix, o.life, o.version, o.size, self.now);
                }
            }
        }
        if touched {
            self.recheck_entry(ix);
        }
        self.tidy(ix);
    }

    fn end_pass(&mut self, pass: Pass) {
        for life in pass.dead {
            // Nothing names it any more: no claim, no obligation, no alarm that finds one.
            if let Some(l) = self.nodes.life_mut(life)
                && l.replicas == 0
                && l.obligations == 0
            {
                l.node = NodeIx::MAX;
                self.nodes.free_life(life);
            }
        }
        for (ix, life, generation) in pass.resend {
            let same = self
                .nodes
                .life(life)
                .is_some_and(|l| l.generation == generation);
            if let Some(node) = self.nodes.get_mut(ix).filter(|n| n.life == life && same) {
                node.resend = false;
                self.release_withheld(ix);
                self.try_clear_mark(ix);
            }
        }
        for life in pass.aged {
            let away = self
                .nodes
                .of_life(life)
                .is_some_and(|(_, n)| n.session.is_none());
            if let Some(life) = self.nodes.life_mut(life).filter(|_| away) {
                // Claims of the last session stand one above those that were swept.
                life.generation = life.swept.wrapping_add(1);
            }
        }
        for (life, generation) in pass.confirmed {
            if let Some(life) = self.nodes.life_mut(life) {
                life.swept = generation;
            }
        }
    }

    /// Remembering must not grow without end while a node stays away: past the bound everything that
    /// the absent nodes hold is given up instead, once they have stopped and their marks say so.
    pub(crate) fn bound_memory(&mut self) {
        if self.incomplete == 0 || self.totals.unclaimed <= self.config.bare_max as u64 {
            return;
        }
        let below: Version = self.coming_version();
        let now = self.now;
        for ix in self.nodes.indices() {
            let Some(node) = self.nodes.get_mut(ix) else {
                continue;
            };
            if node.complete || node.session.is_some() || !node.stopped(now) {
                continue;
            }
            match node.mark {
                Mark::Durable => {
                    node.refuse_below = below;
                    node.complete = true;
                }
                Mark::Failed(at) if at + PERSIST_RETRY > now => {}
                _ => self.want_mark(ix),
            }
        }
        self.count_incomplete();
    }
}
