//! What each step does to the world. Messages that arrive are in `receive`.

use crate::actions::{Action, Force, Teller};
use crate::rules::{Config, Rule};
use crate::set::SmallSet;
use crate::state::{
    ALL_NODES, Claim, Item, KEYS, Key, Master, Msg, NODES, Node, NodeIx, OLDER_LOCATED, OldMaster,
    Owed, Peer, REMOVED_BACK, RIGHT_BYTES, Reader, Stage, Stamp, State, TERM_SPAN, Version, ix,
};

impl Config {
    /// The world at the beginning: everybody registered, nothing stored.
    pub fn initial(&self) -> State {
        let node = Node {
            epoch: 1,
            session: 1,
            term: 1,
            seq: 0,
            serving: true,
            entries: Vec::new(),
            dram: (0, 0),
            disk: (0, 0),
            pin: None,
            retired: SmallSet::default(),
        };
        let peer = Peer {
            session: 1,
            seq: 0,
            epoch: 1,
            inventoried: true,
            listed: true,
            may_serve: true,
            withheld: false,
        };
        State {
            master: Master {
                peers: [peer; NODES],
                ..fresh_master(1, 0)
            },
            old: None,
            marks: [0; NODES],
            nodes: [node.clone(), node],
            net: SmallSet::default(),
            reader: Reader::Idle,
            nonce: 0,
            lease_runs: false,
            promise: None,
            acked: [0; KEYS],
            removed: [0; KEYS],
            seen: [0; KEYS],
            broken: 0,
            budget: self.budget,
        }
    }

    /// Takes one step.
    pub fn apply(&self, s: &mut State, action: Action) {
        match action {
            Action::Deliver(msg) => {
                s.net.remove(&msg);
                self.receive(s, msg);
            }
            Action::Duplicate(msg) => {
                s.budget.dup -= 1;
                self.receive(s, msg);
            }
            Action::Drop(msg) => {
                s.budget.drop -= 1;
                s.net.remove(&msg);
            }
            Action::Reserve(key, mask) => self.reserve(s, key, mask),
            Action::Commit(node) => {
                for entry in &mut s.nodes[ix(node)].entries {
                    if entry.stage == Stage::Filling {
                        entry.stage = Stage::Publishing;
                    }
                }
            }
            Action::Send(node, at) => {
                let first = s.nodes[ix(node)].entries[at].stage == Stage::Committed;
                self.send(s, node, at, first);
            }
            Action::Retry(node, at) => {
                s.budget.retry -= 1;
                self.send(s, node, at, false);
            }
            Action::Rollback(node, at) | Action::Reclaim(node, at) => {
                self.drop_entry(&mut s.nodes[ix(node)], at);
            }
            Action::Evict(node, at) => {
                s.budget.evict -= 1;
                s.nodes[ix(node)].entries[at].stage = Stage::Retracting;
                self.send(s, node, at, true);
                if !self.has(Rule::RetractFirst) {
                    self.drop_entry(&mut s.nodes[ix(node)], at);
                }
            }
            Action::Offload(node, at) => {
                let own = &mut s.nodes[ix(node)];
                own.entries[at].ssd = true;
                own.disk = (own.entries[at].key, own.entries[at].version);
            }
            Action::DropDram(node, at) => s.nodes[ix(node)].entries[at].dram = false,
            Action::Crash(node) => self.crash(s, node),
            Action::Register(node) => self.register(s, node),
            Action::EndSession(node) => self.end_session(s, node),
            Action::SendInventoryEnd(node) => self.send_inventory_end(s, node),
            Action::Release(node) => {
                s.nodes[ix(node)].serving = true;
                s.master.peers[ix(node)].may_serve = true;
                s.master.peers[ix(node)].withheld = false;
            }
            Action::CleanMark(node) => s.marks[ix(node)] = 0,
            Action::NodeLapse(node) => {
                if !s.master.peers[ix(node)].withheld {
                    s.budget.session -= 1;
                }
                self.node_lapse(s, node);
            }
            Action::MasterLapse(node) => {
                s.master.peers[ix(node)].may_serve = false;
                if self.has(Rule::ServingLease) && self.has(Rule::ServingFromSend) {
                    self.node_lapse(s, node);
                }
            }
            Action::OldMasterRenews(node) => {
                s.nodes[ix(node)].serving = true;
                for entry in &mut s.nodes[ix(node)].entries {
                    entry.confirmed = true;
                }
            }
            Action::MasterCrash => self.master_crash(s),
            Action::GraceEnd => s.master.grace = false,
            Action::Fence => s.old = None,
            Action::LeaseEnd(nonce) => s.master.leases.retain(|l| l.nonce != nonce),
            Action::ReaderLeaseEnd => {
                s.lease_runs = false;
                s.promise = None;
                let counted = s.reader == Reader::Waiting && self.has(Rule::LeaseFromSend);
                if counted || matches!(s.reader, Reader::Holding(_)) {
                    s.reader = Reader::Idle;
                }
            }
            Action::Locate(claim, teller) => self.locate(s, claim, teller),
            Action::StartRead => self.start_read(s),
            Action::ReadDone(node) => read_done(s, node),
            Action::ReportBad => {
                s.budget.report -= 1;
                if let Reader::Holding(claim) = s.reader {
                    s.net.insert(Msg::Report { claim });
                }
                reader_gives_up(s);
            }
            Action::ReaderTimeout => {
                reader_gives_up(s);
                s.net.retain(|m| !matches!(m, Msg::Location { .. }));
            }
            Action::Remove(key, force) => self.remove(s, key, force),
            Action::SendRetire(Owed { node, key, version }) => {
                s.net.insert(Msg::Retire {
                    node,
                    term: s.master.term,
                    key,
                    version,
                });
            }
            Action::RemoveDone => {
                if let Some((key, newest)) = s.master.removing.take() {
                    self.mark_absent(s, key);
                    s.removed[ix(key)] = s.removed[ix(key)].max(newest);
                    self.forget_settled(s, key);
                }
            }
        }
    }

    fn reserve(&self, s: &mut State, key: Key, mask: u8) {
        s.budget.put -= 1;
        s.master.counter += 1;
        let version = s.master.term * TERM_SPAN + s.master.counter;
        for node in ALL_NODES.into_iter().filter(|n| mask >> n & 1 == 1) {
            s.master.placed.insert(Owed { node, key, version });
            let epoch = s.nodes[ix(node)].epoch;
            s.net.insert(Msg::Write {
                node,
                epoch,
                key,
                version,
            });
        }
    }

    /// Sends the publish or retract that an entry is waiting for.
    pub(crate) fn send(&self, s: &mut State, node: NodeIx, at: usize, first: bool) {
        let own = &mut s.nodes[ix(node)];
        if first || self.has(Rule::FreshNumber) {
            own.seq += 1;
            own.entries[at].seq = own.seq;
        }
        let epoch = own.epoch;
        let (term, session) = (own.term, own.session);
        let entry = &mut own.entries[at];
        let stamp = Stamp {
            node,
            term,
            session,
            seq: entry.seq,
        };
        let (key, version, acked) = (entry.key, entry.version, entry.acked);
        if entry.stage == Stage::Retracting {
            s.net.insert(Msg::Retract {
                at: stamp,
                key,
                version,
            });
            return;
        }
        if entry.stage == Stage::Committed {
            entry.stage = Stage::Publishing;
        }
        s.net.insert(Msg::Publish {
            at: stamp,
            epoch,
            item: Item {
                key,
                version,
                acked,
            },
        });
    }

    /// Gives an entry's bytes back.
    pub(crate) fn drop_entry(&self, node: &mut Node, at: usize) {
        let entry = node.entries.remove(at);
        if entry.ssd {
            node.disk = (0, 0);
        }
        if self.has(Rule::OneShotFreed) {
            node.retired.insert((entry.key, entry.version));
        }
    }

    fn crash(&self, s: &mut State, node: NodeIx) {
        s.budget.node_crash -= 1;
        let durable = self.has(Rule::TombstoneFirst);
        let kept = self.has(Rule::AckedDurable);
        let own = &mut s.nodes[ix(node)];
        own.epoch += 1;
        own.term = 0;
        own.seq = 0;
        own.serving = false;
        own.pin = None;
        own.dram = (0, 0);
        own.retired.clear();
        own.entries.retain(|e| e.ssd && !(e.tombstone && durable));
        if own.entries.is_empty() {
            own.disk = (0, 0);
        }
        for entry in &mut own.entries {
            entry.dram = false;
            entry.stage = Stage::Committed;
            entry.seq = 0;
            entry.acked &= kept;
            entry.confirmed = false;
            entry.tombstone = false;
        }
        if matches!(s.reader, Reader::Reading(c) if c.node == node) {
            s.reader = Reader::Idle;
            s.lease_runs = false;
        }
        break_promise(s, |c| c.node == node);
    }

    fn register(&self, s: &mut State, node: NodeIx) {
        let n = ix(node);
        let term = s.master.term;
        let lapsed = !s.nodes[n].serving;
        if !self.has(Rule::NothingDiscarded) && s.marks[n] != 0 && s.marks[n] != term {
            s.nodes[n].entries.clear();
            s.nodes[n].disk = (0, 0);
            s.marks[n] = 0;
        }
        if !self.has(Rule::SessionEndFreesNothing) {
            while let Some(at) = s.nodes[n]
                .entries
                .iter()
                .position(|e| e.stage == Stage::Retracting)
            {
                self.drop_entry(&mut s.nodes[n], at);
            }
        }
        let own = &mut s.nodes[n];
        own.session += 1;
        own.seq = 0;
        own.term = term;
        if !self.has(Rule::SessionNotEpoch) {
            own.epoch += 1;
        }
        for entry in &mut own.entries {
            if !matches!(entry.stage, Stage::Filling | Stage::Retracted) {
                entry.stage = Stage::Committed;
            }
            entry.seq = 0;
            let unconfirm = self.confirm && self.has(Rule::UnconfirmAtRegister);
            entry.confirmed &= !(lapsed && unconfirm);
        }
        let empty = own.entries.is_empty();
        let (epoch, session) = (own.epoch, own.session);
        let peer = &mut s.master.peers[n];
        let same_life = peer.epoch == epoch;
        peer.session = session;
        peer.seq = 0;
        peer.epoch = epoch;
        peer.inventoried = false;
        peer.listed &= same_life && self.has(Rule::ClaimsSurvive);
        if !same_life && self.has(Rule::SessionNotEpoch) {
            // The process that served before is dead.
            peer.may_serve = false;
        }
        if !same_life && self.has(Rule::EpochDropsOwed) {
            s.master.placed.retain(|o| o.node != node);
            s.master.retire.retain(|o| o.node != node);
        }
        let owes = s.master.retire.any(|o| o.node == node);
        let withheld = self.has(Rule::LeaseWithheld) && (owes || s.marks[n] != 0);
        s.master.peers[n].withheld = withheld;
        if !withheld {
            s.nodes[n].serving = true;
            s.master.peers[n].may_serve = true;
        }
        self.session_gone(s, node, |c| c.epoch == epoch);
        if empty {
            // Nothing to list; the messages would only multiply the states.
            s.master.claims.retain(|c| c.node != node);
            s.master.hidden.retain(|c| c.node != node);
            self.close_inventory(s, node);
        }
    }

    fn end_session(&self, s: &mut State, node: NodeIx) {
        if self.registered(s, node) {
            s.budget.session -= 1;
        }
        s.master.peers[ix(node)].session = 0;
        s.master.peers[ix(node)].seq = 0;
        s.master.peers[ix(node)].inventoried = false;
        self.session_gone(s, node, |_| true);
        if !self.has(Rule::ClaimsSurvive) {
            s.master.peers[ix(node)].listed = false;
        }
        for key in 0..self.keys {
            self.forget_evicted(s, key);
        }
    }

    /// Drops what the loss of a session takes with it.
    fn session_gone(&self, s: &mut State, node: NodeIx, same_life: impl Fn(&Claim) -> bool) {
        let survive = self.has(Rule::ClaimsSurvive);
        s.master
            .claims
            .retain(|c| c.node != node || (survive && same_life(c)));
        s.master
            .hidden
            .retain(|c| c.node != node || (survive && same_life(c)));
        if !self.has(Rule::LeasesOutliveSession) {
            s.master.leases.clear();
        }
    }

    fn send_inventory_end(&self, s: &mut State, node: NodeIx) {
        let whole = self.has(Rule::InventoryIsWhole);
        let own = &mut s.nodes[ix(node)];
        own.seq += 1;
        let at = Stamp {
            node,
            term: own.term,
            session: own.session,
            seq: own.seq,
        };
        let mut items: Vec<Item> = own
            .entries
            .iter()
            .filter(|e| !matches!(e.stage, Stage::Filling | Stage::Retracted))
            .filter(|e| whole || e.stage == Stage::Published)
            .map(|e| Item {
                key: e.key,
                version: e.version,
                acked: e.acked,
            })
            .collect();
        items.sort_unstable();
        s.net.insert(Msg::InventoryEnd {
            at,
            epoch: own.epoch,
            items,
        });
    }

    fn node_lapse(&self, s: &mut State, node: NodeIx) {
        let own = &mut s.nodes[ix(node)];
        own.serving = false;
        if self.confirm {
            for entry in &mut own.entries {
                entry.confirmed = false;
            }
        }
        break_promise(s, |c| c.node == node);
    }

    fn master_crash(&self, s: &mut State) {
        s.budget.master_crash -= 1;
        if !self.has(Rule::OldMasterSilent) {
            let Master {
                term,
                current,
                ref claims,
                ..
            } = s.master;
            s.old = Some(OldMaster {
                term,
                current,
                claims: claims.clone(),
            });
        }
        let mut next = fresh_master(s.master.term + 1, s.nonce);
        next.grace = true;
        // Nodes and their epochs are known durably.
        for (peer, former) in next.peers.iter_mut().zip(&s.master.peers) {
            peer.epoch = former.epoch;
            peer.may_serve = self.has(Rule::RestartAssumesServing);
        }
        s.master = next;
        if !self.long_grace {
            s.promise = None;
        }
    }

    fn locate(&self, s: &mut State, claim: Claim, teller: Teller) {
        let k = ix(claim.key);
        s.budget.locate -= 1;
        s.nonce += 1;
        s.lease_runs = true;
        s.reader = Reader::Waiting;
        if teller == Teller::Present {
            let (key, version, nonce) = (claim.key, claim.version, s.nonce);
            s.master.leases.insert(crate::state::Lease {
                key,
                version,
                nonce,
            });
        }
        if claim.version <= s.removed[k] {
            s.broken |= REMOVED_BACK;
        } else if claim.version < s.acked[k] {
            s.broken |= OLDER_LOCATED;
        }
        if claim.version <= s.acked[k] {
            s.seen[k] = s.seen[k].max(claim.version);
        }
        // A node that does not serve at this moment is not 'alive' in the sense of the promise.
        let own = &s.nodes[ix(claim.node)];
        let alive = own.serving && (claim.epoch == own.epoch || !self.has(Rule::SessionNotEpoch));
        s.promise = alive.then_some(claim);
        s.net.insert(Msg::Location {
            nonce: s.nonce,
            claim,
        });
    }

    fn start_read(&self, s: &mut State) {
        s.budget.read -= 1;
        if let Reader::Holding(claim) = s.reader {
            let (k, v) = (ix(claim.key), claim.version);
            let replaced = self.puts_replace && (v < s.acked[k] || v < s.seen[k]);
            let late = v <= s.removed[k] || replaced;
            s.net.insert(Msg::Read {
                nonce: s.nonce,
                claim,
                late,
            });
            s.reader = Reader::Reading(claim);
        }
    }

    fn remove(&self, s: &mut State, key: Key, force: Force) {
        let k = ix(key);
        match force {
            Force::Plain => s.budget.remove -= 1,
            Force::Forced => s.budget.forced -= 1,
        }
        let newest = s.acked[k];
        let version = if self.has(Rule::RemoveTakesVersion) {
            s.master.counter += 1;
            s.master.term * TERM_SPAN + s.master.counter
        } else {
            s.master.current[k]
        };
        s.master.removed_at[k] = s.master.removed_at[k].max(version);
        s.master.removing = Some((key, newest));
        self.outdate(s, key, version);
        if force == Force::Forced {
            break_promise(s, |c| c.key == key && c.version <= version);
        }
    }

    /// Makes everything of the key at or below a version refused, and its owners obliged.
    pub(crate) fn outdate(&self, s: &mut State, key: Key, version: Version) {
        let master = &mut s.master;
        master.floor[ix(key)] = master.floor[ix(key)].max(version);
        let old = |c: &Claim| c.key == key && c.version <= version;
        let mut dead = master.claims.take_where(old);
        dead.extend(master.hidden.take_where(old));
        for c in dead {
            master.retire.insert(Owed {
                node: c.node,
                key,
                version: c.version,
            });
        }
        if self.has(Rule::PlacedIsOwner) {
            for owed in master
                .placed
                .take_where(|o| o.key == key && o.version <= version)
            {
                master.retire.insert(owed);
            }
        }
    }

    /// Writes the durable mark of every owner that is away, and of every node that may be one
    /// because it was not listed in this term.
    pub(crate) fn mark_absent(&self, s: &mut State, key: Key) {
        if !self.has(Rule::MarkAbsent) {
            return;
        }
        for n in 0..NODES {
            let peer = &s.master.peers[n];
            let owes = s.master.retire.any(|o| ix(o.node) == n && o.key == key);
            let away = peer.session == 0 || !peer.may_serve;
            if ((owes && away) || !peer.listed) && s.marks[n] == 0 {
                s.marks[n] = s.master.term;
            }
        }
    }

    /// The rule that the model shows to be wrong: forget a key with its last replica.
    pub(crate) fn forget_evicted(&self, s: &mut State, key: Key) {
        if self.has(Rule::LastRemembered) {
            self.forget_settled(s, key);
            return;
        }
        let master = &mut s.master;
        if master.removing.is_none() && !master.claims.any(|c| c.key == key) {
            master.current[ix(key)] = 0;
            master.floor[ix(key)] = master.removed_at[ix(key)];
        }
    }

    /// Forgets a key that nobody can bring back: no claim, nothing owed, every node listed.
    pub(crate) fn forget_settled(&self, s: &mut State, key: Key) {
        let master = &mut s.master;
        let known = master.claims.any(|c| c.key == key)
            || master.hidden.any(|c| c.key == key)
            || master.placed.any(|o| o.key == key)
            || master.retire.any(|o| o.key == key)
            || master.removing.is_some();
        let listed = master.peers.iter().all(|p| p.listed);
        if self.has(Rule::ForgetWhenSettled) && !known && listed {
            master.current[ix(key)] = 0;
            master.floor[ix(key)] = 0;
            master.removed_at[ix(key)] = 0;
        }
    }
}

fn fresh_master(term: u8, grace_nonce: u8) -> Master {
    let peer = Peer {
        session: 0,
        seq: 0,
        epoch: 0,
        inventoried: false,
        listed: false,
        may_serve: false,
        withheld: false,
    };
    Master {
        term,
        counter: 0,
        grace: false,
        grace_nonce,
        current: [0; KEYS],
        floor: [0; KEYS],
        removed_at: [0; KEYS],
        peers: [peer; NODES],
        claims: SmallSet::default(),
        hidden: SmallSet::default(),
        placed: SmallSet::default(),
        retire: SmallSet::default(),
        leases: SmallSet::default(),
        removing: None,
    }
}

fn read_done(s: &mut State, node: NodeIx) {
    let own = &mut s.nodes[ix(node)];
    let Some(pin) = own.pin.take() else { return };
    let got = if pin.dram { own.dram } else { own.disk };
    if got != (pin.key, pin.wanted) {
        s.broken |= RIGHT_BYTES;
    }
    if let Reader::Reading(claim) = s.reader {
        s.reader = if s.lease_runs {
            Reader::Holding(claim)
        } else {
            Reader::Idle
        };
    }
}

/// The reader forgets its location.
pub(crate) fn reader_gives_up(s: &mut State) {
    s.reader = Reader::Idle;
    s.lease_runs = false;
    s.promise = None;
}

/// The promise to the reader ends for a reason that the contract allows.
pub(crate) fn break_promise(s: &mut State, allowed: impl Fn(&Claim) -> bool) {
    if s.promise.as_ref().is_some_and(allowed) {
        s.promise = None;
    }
}
