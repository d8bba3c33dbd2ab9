//! Owners without a claim: a node placed for a put, one whose retract was granted, one that has to
//! retire. Each stays until the node confirms the absence or its process has died.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::object::{Ix, LifeIx, NO_GROUP, Obligation, Owes};
use crate::timers::Reason;
use snowskin_types::limits::RETIRE_RETRY;
use snowskin_types::time::Now;
use snowskin_types::version::Version;

impl Directory {
    fn placements_of(&self, ix: Ix, version: Version) -> usize {
        let all = self.table.entry(ix).obligations().iter();
        all.filter(|o| o.version == version && o.owes == Owes::Placed)
            .count()
    }

    /// Notes that a life owns a version in this way. It must not hold an obligation of it yet.
    pub(crate) fn oblige(&mut self, ix: Ix, life: LifeIx, version: Version, size: u64, owes: Owes) {
        let last = self.placements_of(ix, version) == 0;
        self.tally_obligation(life, owes, size, last, true);
        let alarm = (owes == Owes::Placed).then(|| {
            let due = self.now + self.config.put_start_discard_timeout;
            self.timers
                .set(due, Reason::Obligation { ix, life, version })
        });
        let generation = self.nodes.life(life).map_or(0, |l| l.generation);
        let since = self.now;
        let all = &mut self.table.entry_mut(ix).rare_mut().obligations;
        all.reserve_exact(1);
        all.push(Obligation {
            version,
            size,
            life,
            owes,
            replaces: false,
            generation,
            alarm,
            since,
        });
    }

    /// Notes that a placement is for a put that may replace an older version.
    pub(crate) fn note_replace(&mut self, ix: Ix, life: LifeIx, version: Version) {
        if let Some(o) = self.table.entry_mut(ix).obligation_mut(life, version) {
            o.replaces = true;
        }
    }

    /// Ends an obligation and returns what it was.
    pub(crate) fn release(&mut self, ix: Ix, life: LifeIx, version: Version) -> Option<Owes> {
        let all = &mut self.table.entry_mut(ix).rare_mut().obligations;
        let at = all
            .iter()
            .position(|o| o.life == life && o.version == version)?;
        let gone = all.swap_remove(at);
        if all.is_empty() {
            all.shrink_to_fit();
        }
        self.timers.clear(gone.alarm);
        let last = self.placements_of(ix, version) == 0;
        self.tally_obligation(life, gone.owes, gone.size, last, false);
        if gone.owes == Owes::Retiring
            && let Some((node, _)) = self.nodes.of_life(life)
            && let Some(n) = self.nodes.get_mut(node)
            && n.unobeyed.remove(&(ix, version))
        {
            self.release_withheld(node);
        }
        Some(gone.owes)
    }

    /// The life has to retire the version; the order goes out at `from` (at once when that has
    /// passed). Whatever else was noted of this owner is replaced.
    pub(crate) fn must_retire(
        &mut self,
        ix: Ix,
        life: LifeIx,
        version: Version,
        size: u64,
        from: Now,
    ) {
        if self.nodes.is_dead(life) {
            return;
        }
        let before = self.table.entry(ix).obligation(life, version).cloned();
        match before {
            Some(o) if o.owes == Owes::Retiring => {
                if o.since > from && o.since > self.now {
                    self.order(ix, life, version, from);
                }
                return;
            }
            Some(o) => {
                self.release(ix, life, version);
                if o.owes == Owes::Placed && self.placements_of(ix, version) == 0 {
                    self.count(Counter::PutDiscarded, 1);
                }
            }
            None => {}
        }
        self.oblige(ix, life, version, size, Owes::Retiring);
        self.order(ix, life, version, from);
    }

    /// Sends an order to retire, or sets the alarm that will.
    pub(crate) fn order(&mut self, ix: Ix, life: LifeIx, version: Version, from: Now) {
        let target = self.nodes.of_life(life);
        let linked = target.and_then(|(node, n)| n.session.map(|_| node));
        let mut due = None;
        if from > self.now {
            due = Some(from);
        } else if let (Some(node), Some(name)) = (linked, self.table.name(ix)) {
            self.outbox.retire(node, name, version);
            if let Some(n) = self.nodes.get_mut(node).filter(|n| n.withheld) {
                n.unobeyed.insert((ix, version));
            }
            due = Some(self.now + RETIRE_RETRY);
        }
        let alarm = due.map(|due| {
            self.timers
                .set(due, Reason::Obligation { ix, life, version })
        });
        if let Some(o) = self.table.entry_mut(ix).obligation_mut(life, version) {
            let old = std::mem::replace(&mut o.alarm, alarm);
            o.since = from;
            self.timers.clear(old);
        } else {
            self.timers.clear(alarm);
        }
    }

    pub(crate) fn on_obligation_alarm(&mut self, ix: Ix, life: LifeIx, version: Version) {
        if !self.table.is_live(ix) {
            return;
        }
        let now = self.now;
        let Some(o) = self.table.entry_mut(ix).obligation_mut(life, version) else {
            return;
        };
        o.alarm = None;
        let (owes, size) = (o.owes, o.size);
        match owes {
            Owes::Placed => self.must_retire(ix, life, version, size, now),
            Owes::Retiring => self.order(ix, life, version, now),
            Owes::Retracted => {}
        }
    }

    /// Every owner of versions up to `bound` has to retire them, at once.
    pub(crate) fn retire_up_to(&mut self, ix: Ix, bound: Version) {
        let now = self.now;
        let entry = self.table.entry(ix);
        let (version, size) = (entry.version, entry.size);
        if version <= bound && entry.has_claims() {
            let holders: Vec<LifeIx> = entry.claims().map(|c| c.life).collect();
            self.count_out(ix);
            for life in &holders {
                self.table.entry_mut(ix).remove_claim(*life);
                self.unhide(ix, *life);
            }
            self.count_in(ix);
            self.end_lease(ix);
            for life in holders {
                self.must_retire(ix, life, version, size, now);
            }
        }
        let all = self.table.entry(ix).obligations().iter();
        let owners: Vec<_> = all
            .filter(|o| o.version <= bound)
            .filter(|o| o.owes != Owes::Retiring || o.since > now)
            .map(|o| (o.life, o.version, o.size))
            .collect();
        for (life, version, size) in owners {
            self.must_retire(ix, life, version, size, now);
        }
    }

    /// Takes one claim away. The caller sees to the obligation that may remain.
    pub(crate) fn drop_claim(&mut self, ix: Ix, life: LifeIx) {
        self.count_out(ix);
        self.table.entry_mut(ix).remove_claim(life);
        self.count_in(ix);
        self.unhide(ix, life);
        if !self.table.entry(ix).has_claims() {
            self.end_lease(ix);
        }
    }

    /// Forgets an entry that nothing needs: no owner, no waiter, and no node that may still tell of an
    /// older copy.
    pub(crate) fn tidy(&mut self, ix: Ix) {
        let entry = self.table.entry(ix);
        let empty = entry.version.is_none() && entry.floor().is_none();
        if entry.is_bare() && (self.incomplete == 0 || empty) {
            self.count_out(ix);
            self.end_lease(ix);
            let group = self.table.entry(ix).group();
            if group != NO_GROUP {
                self.groups.leave(group, ix);
            }
            self.table.remove(ix);
        } else {
            let told = self.incomplete == 0;
            let entry = self.table.entry_mut(ix);
            if told {
                entry.set_strict(false);
            }
            entry.trim();
        }
    }
}
