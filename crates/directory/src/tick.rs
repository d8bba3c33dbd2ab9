//! What the passing of time leads to.

use crate::directory::Directory;
use crate::effect::{Counter, Effect};
use crate::node::{Mark, NodeIx, state_of};
use crate::timers::Reason;
use snowskin_types::limits::{FORGET_AFTER, SELF_DOUBT, SLICE_ITEMS};
use snowskin_types::time::Millis;

/// Nodes are looked at no more often than this, however many slices are worked off in between.
const NODES_INTERVAL: Millis = Millis(50);

impl Directory {
    pub(crate) fn on_tick(&mut self) {
        let late = self.now.since(self.last_tick);
        self.last_tick = self.now;
        if late > SELF_DOUBT {
            self.doubt();
        }
        if self.now >= self.nodes_due {
            self.nodes_due = self.now + NODES_INTERVAL;
            self.tick_nodes();
        }
        self.tick_readiness();
        for _ in 0..SLICE_ITEMS {
            match self.timers.pop_due(self.now) {
                Some(Reason::Obligation { ix, life, version }) => {
                    self.on_obligation_alarm(ix, life, version);
                }
                Some(Reason::Verify { ix, life }) => self.on_verify_alarm(ix, life),
                None => break,
            }
        }
        if !self.in_grace() {
            self.deferred_slice();
        }
        self.bound_memory();
        self.sweep_slice();
        self.recheck_slice();
        self.jobs_slice();
        self.want_continue();
    }

    /// The master itself stood still: it cannot tell who was silent.
    fn doubt(&mut self) {
        let now = self.now;
        for ix in self.nodes.indices() {
            if let Some(node) = self.nodes.get_mut(ix) {
                node.heard = now;
                node.broken = node.broken.map(|_| now);
            }
        }
        self.count(Counter::SelfDoubt, 1);
    }

    fn tick_nodes(&mut self) {
        let now = self.now;
        let (suspect, gone) = (self.config.suspect_after, self.config.client_ttl);
        let mut stopped = false;
        for at in 0..self.nodes.slots() {
            let ix = at as u16;
            let Some(node) = self.nodes.get_mut(ix) else {
                continue;
            };
            let silence = now.since(node.heard);
            let state = state_of(node, now, suspect, gone);
            if state != node.state {
                node.state = state;
                self.placeable = None;
            }
            let ends = !node.stop_seen && node.stopped(now);
            if ends {
                node.stop_seen = true;
                stopped = true;
            }
            let serves = node.session.is_some() && !node.withheld;
            let (ping, mark) = (node.ping_due <= now, node.mark);
            let forget = node.stopped(now) && (silence > FORGET_AFTER || node.left);
            if ends && serves {
                self.withhold(ix);
            }
            if ping {
                self.outbox.ping(ix);
            }
            if mark == Mark::Durable {
                self.try_clear_mark(ix);
            }
            if forget {
                self.end_session(ix, true);
                self.begin_forget(ix);
            }
        }
        if stopped {
            self.waits.recheck();
        }
    }

    /// A node's serving lease ran out within its session. Answers may rest on its silence: it serves again
    /// once it has told all that it holds and has obeyed its orders, also those that got lost.
    fn withhold(&mut self, ix: NodeIx) {
        let life = self.nodes.get(ix).and_then(|n| self.nodes.life(n.life));
        let retiring = life.is_some_and(|l| l.retiring > 0);
        if let Some(node) = self.nodes.get_mut(ix) {
            node.withheld = true;
            node.resend = retiring;
            self.placeable = None;
        }
        if retiring {
            self.sweeper.want();
        }
    }

    fn tick_readiness(&mut self) {
        if !self.ready && (self.incomplete == 0 || self.now >= self.recovery_end) {
            self.ready = true;
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.sweeper.has_work()
            || self.waits.has_work()
            || self.jobs_have_work()
            || (!self.in_grace() && !self.deferred.is_empty())
            || (!self.ready && self.incomplete == 0)
    }

    /// Asks for another tick soon when a sliced job waits.
    pub(crate) fn want_continue(&mut self) {
        let due = self.timers.next_due().is_some_and(|due| due <= self.now);
        if (self.has_work() || due) && self.effects.last() != Some(&Effect::Continue) {
            self.effects.push(Effect::Continue);
        }
    }
}
