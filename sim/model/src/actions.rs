//! Every step that can happen, and when it may.

use crate::rules::{Config, Rule};
use crate::state::{
    ALL_NODES, Claim, Entry, Key, Msg, NODES, NodeIx, Owed, Reader, Stage, State, ix,
};

/// One step of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A message arrives.
    Deliver(Msg),
    /// A message arrives and stays under way.
    Duplicate(Msg),
    /// A message is lost.
    Drop(Msg),
    /// The master places a put on the nodes of this mask; the writer sends the bytes.
    Reserve(Key, u8),
    /// The bytes of a replica that was announced too early are complete.
    Commit(NodeIx),
    /// The node sends what this entry is waiting to tell.
    Send(NodeIx, usize),
    /// ... again, although an earlier message may still be under way.
    Retry(NodeIx, usize),
    /// The node forgets an entry because an answer is missing.
    Rollback(NodeIx, usize),
    /// The node wants an entry's bytes back.
    Evict(NodeIx, usize),
    /// The node gives back an unpinned retracted entry.
    Reclaim(NodeIx, usize),
    /// The entry is copied to SSD.
    Offload(NodeIx, usize),
    /// Its DRAM copy is given back.
    DropDram(NodeIx, usize),
    /// The process dies and starts again, empty but for its SSD.
    Crash(NodeIx),
    /// The node registers with the present master.
    Register(NodeIx),
    /// The master ends a session.
    EndSession(NodeIx),
    /// The node closes its inventory.
    SendInventoryEnd(NodeIx),
    /// The master gives a returned node its serving lease back.
    Release(NodeIx),
    /// The master takes a node's mark off.
    CleanMark(NodeIx),
    /// The node's serving lease ends on its own clock, before the master may count on it.
    NodeLapse(NodeIx),
    /// The serving lease has ended on the node's clock and then on the master's.
    MasterLapse(NodeIx),
    /// The master dies and a new one starts with a higher term.
    MasterCrash,
    /// The new master's grace ends.
    GraceEnd,
    /// The old master is certainly silent.
    Fence,
    /// A deposed master renews a node's serving lease.
    OldMasterRenews(NodeIx),
    /// The master forgets a lease.
    LeaseEnd(u8),
    /// The reader's lease ends on its own clock.
    ReaderLeaseEnd,
    /// The reader is told of this claim, by the old master or the present one.
    Locate(Claim, Teller),
    /// The reader uses its location.
    StartRead,
    /// A pinned read ends.
    ReadDone(NodeIx),
    /// The reader gives up.
    ReaderTimeout,
    /// The reader reports its location as bad.
    ReportBad,
    /// A client removes the key; forced or not.
    Remove(Key, Force),
    /// The master orders an owner to retire.
    SendRetire(Owed),
    /// The master answers the remove.
    RemoveDone,
}

/// Which master answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Teller {
    Present,
    Old,
}

/// What kind of remove it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Force {
    Plain,
    Forced,
}

impl Config {
    /// Lists every step that may happen next.
    pub fn enabled(&self, state: &State, out: &mut Vec<Action>) {
        if state.broken != 0 {
            return;
        }
        self.enabled_network(state, out);
        for node in ALL_NODES {
            self.enabled_node(state, node, out);
        }
        self.enabled_master(state, out);
        self.enabled_clients(state, out);
    }

    /// The node and the master agree on the session.
    pub fn registered(&self, state: &State, node: NodeIx) -> bool {
        let own = &state.nodes[ix(node)];
        own.term == state.master.term && state.master.peers[ix(node)].session == own.session
    }

    /// The master has a live session of this node.
    pub fn live(&self, state: &State, node: NodeIx) -> bool {
        state.master.peers[ix(node)].session != 0
    }

    /// A lease, or the grace, protects this version (zero: any version of the key).
    pub fn leased(&self, state: &State, key: Key, version: u8) -> bool {
        (state.master.grace && self.has(Rule::GraceHoldsRetract))
            || state
                .master
                .leases
                .any(|l| l.key == key && (version == 0 || l.version == version))
    }

    /// No owner of an outdated version of the key can serve it any more, and all that could own
    /// one unknown to the master have told or stopped serving.
    pub fn settled(&self, state: &State, key: Key, wait_unlisted: bool) -> bool {
        ALL_NODES.iter().all(|&node| {
            let peer = &state.master.peers[ix(node)];
            let owes = state.master.retire.any(|o| o.node == node && o.key == key);
            let waits_for = if self.has(Rule::WaitServingLease) {
                peer.may_serve
            } else {
                peer.session != 0
            };
            let owner_done = !(owes && waits_for);
            let told = peer.listed || !peer.may_serve || !wait_unlisted;
            owner_done && told
        })
    }

    /// A read at the node pins this entry.
    pub fn pinned(&self, state: &State, node: NodeIx, entry: &Entry) -> bool {
        self.has(Rule::Pins)
            && state.nodes[ix(node)]
                .pin
                .is_some_and(|p| p.key == entry.key && p.version == entry.version)
    }

    fn talking_about(&self, state: &State, node: NodeIx, entry: &Entry) -> bool {
        let session = state.nodes[ix(node)].session;
        state.net.any(|msg| match msg {
            Msg::Publish { at, item, .. } => {
                at.node == node
                    && at.session == session
                    && (item.key, item.version) == (entry.key, entry.version)
            }
            Msg::PublishAck {
                at, key, version, ..
            }
            | Msg::Retract { at, key, version }
            | Msg::RetractAck {
                at, key, version, ..
            } => {
                at.node == node
                    && at.session == session
                    && (*key, *version) == (entry.key, entry.version)
            }
            _ => false,
        })
    }

    /// A message that would be answered 'busy' waits here instead, so that sequence numbers
    /// stay bounded; the node's retry is the same thing.
    pub fn deliverable(&self, state: &State, msg: &Msg) -> bool {
        match msg {
            Msg::Write { node, .. } => {
                let own = &state.nodes[ix(*node)];
                !own.entries.iter().any(|e| e.dram) && own.entries.len() < 2
            }
            Msg::Read { claim, .. } => {
                let own = &state.nodes[ix(claim.node)];
                let waits = self.has(Rule::UnconfirmedWaits)
                    && self.confirm
                    && own.serving
                    && own.epoch == claim.epoch
                    && own.find(claim.key, claim.version).is_some_and(|i| {
                        let entry = &own.entries[i];
                        !entry.confirmed && entry.stage != Stage::Retracted
                    });
                own.pin.is_none() && !waits
            }
            Msg::Publish { at, item, .. }
                if at.term == state.master.term
                    && state.master.peers[ix(at.node)].session == at.session =>
            {
                let owed = Owed {
                    node: at.node,
                    key: item.key,
                    version: item.version,
                };
                let claimed = state
                    .master
                    .claims
                    .any(|c| (c.node, c.key, c.version) == (at.node, item.key, item.version));
                let refused = state.master.retire.contains(&owed);
                let waits = self.waits_for_grace(state, item.acked)
                    || (claimed && !self.put_settled(state, item.key));
                !refused && !waits
            }
            _ => true,
        }
    }

    /// An item that was never acked has to wait for the end of the grace.
    pub fn waits_for_grace(&self, state: &State, acked: bool) -> bool {
        self.has(Rule::GraceHoldsUnacked) && state.master.grace && !acked
    }

    /// The answer to a put or replace of the key may go out.
    pub fn put_settled(&self, state: &State, key: Key) -> bool {
        !self.has(Rule::ReplaceAsksOwners)
            || self.settled(state, key, self.has(Rule::PutWaitsUnlisted))
    }

    fn enabled_network(&self, state: &State, out: &mut Vec<Action>) {
        for msg in state.net.iter() {
            if self.deliverable(state, msg) {
                out.push(Action::Deliver(msg.clone()));
                let repeatable = !matches!(msg, Msg::Location { .. } | Msg::Read { .. });
                if state.budget.dup > 0 && repeatable {
                    out.push(Action::Duplicate(msg.clone()));
                }
            }
            if state.budget.drop > 0 {
                out.push(Action::Drop(msg.clone()));
            }
        }
    }

    fn enabled_node(&self, state: &State, node: NodeIx, out: &mut Vec<Action>) {
        let own = &state.nodes[ix(node)];
        let peer = &state.master.peers[ix(node)];
        let budget = &state.budget;
        let registered = self.registered(state, node);
        for (at, entry) in own.entries.iter().enumerate() {
            self.enabled_entry(state, node, at, entry, out);
        }
        if budget.node_crash > 0 && !own.entries.is_empty() {
            out.push(Action::Crash(node));
        }
        let lapsed = self.has(Rule::ServingLease) && !own.serving && !peer.withheld;
        if own.term <= state.master.term && (!registered || lapsed) {
            out.push(Action::Register(node));
        }
        if peer.session != 0 && (budget.session > 0 || !registered) {
            out.push(Action::EndSession(node));
        }
        if self.has(Rule::ServingLease) && own.serving && (budget.session > 0 || peer.withheld) {
            out.push(Action::NodeLapse(node));
        }
        if peer.may_serve && (peer.session == 0 || peer.withheld) {
            out.push(Action::MasterLapse(node));
        }
        if state
            .old
            .as_ref()
            .is_some_and(|old| own.term == old.term && !own.serving)
        {
            out.push(Action::OldMasterRenews(node));
        }
        if own.pin.is_some() {
            out.push(Action::ReadDone(node));
        }
        let closing = state.net.any(|m| {
            matches!(m, Msg::InventoryEnd { at, .. }
                if at.node == node && at.session == own.session)
        });
        if registered && !peer.inventoried && !closing {
            out.push(Action::SendInventoryEnd(node));
        }
        let owes = state.master.retire.any(|o| o.node == node);
        let told = peer.inventoried || state.marks[ix(node)] == 0;
        if peer.withheld && registered && told && !owes {
            out.push(Action::Release(node));
        }
        if state.marks[ix(node)] != 0 && registered && peer.inventoried && !owes {
            out.push(Action::CleanMark(node));
        }
    }

    fn enabled_entry(
        &self,
        state: &State,
        node: NodeIx,
        at: usize,
        entry: &Entry,
        out: &mut Vec<Action>,
    ) {
        let own = &state.nodes[ix(node)];
        let talking = self.talking_about(state, node, entry);
        let wants = matches!(
            entry.stage,
            Stage::Committed | Stage::Publishing | Stage::Retracting
        );
        if wants && own.term != 0 {
            if !talking && self.registered(state, node) {
                out.push(Action::Send(node, at));
            }
            if talking && state.budget.retry > 0 && entry.stage != Stage::Committed {
                out.push(Action::Retry(node, at));
            }
        }
        match entry.stage {
            Stage::Filling => out.push(Action::Commit(node)),
            Stage::Publishing if !self.has(Rule::NoRollback) => {
                out.push(Action::Rollback(node, at));
            }
            Stage::Published if state.budget.evict > 0 && own.term != 0 => {
                out.push(Action::Evict(node, at));
            }
            Stage::Retracted if !self.pinned(state, node, entry) => {
                out.push(Action::Reclaim(node, at));
            }
            _ => {}
        }
        let copyable = !matches!(entry.stage, Stage::Filling | Stage::Retracted);
        if self.ssd && entry.dram && !entry.ssd && own.disk.1 == 0 && copyable {
            out.push(Action::Offload(node, at));
        }
        if entry.dram && entry.ssd && !self.pinned(state, node, entry) {
            out.push(Action::DropDram(node, at));
        }
    }

    fn enabled_master(&self, state: &State, out: &mut Vec<Action>) {
        let master = &state.master;
        if state.budget.master_crash > 0 {
            out.push(Action::MasterCrash);
        }
        let outlasts = self.long_grace && state.lease_runs && state.nonce <= master.grace_nonce;
        if master.grace && !outlasts {
            out.push(Action::GraceEnd);
        }
        for lease in master.leases.iter() {
            if !(state.lease_runs && state.nonce == lease.nonce) {
                out.push(Action::LeaseEnd(lease.nonce));
            }
        }
        let holds = master.grace && self.has(Rule::GraceHoldsRetire);
        for owed in master
            .retire
            .iter()
            .filter(|o| self.live(state, o.node) && !holds)
        {
            let session = state.nodes[ix(owed.node)].session;
            let asked = state.net.any(|m| match m {
                Msg::Retire {
                    node,
                    term,
                    key,
                    version,
                } => *term == master.term && (*node, *key, *version) == key_of(owed),
                Msg::Retired { at, key, version } => {
                    at.session == session && (at.node, *key, *version) == key_of(owed)
                }
                _ => false,
            });
            if !asked {
                out.push(Action::SendRetire(*owed));
            }
        }
        if let Some((key, _)) = master.removing {
            let wait_unlisted = self.has(Rule::RemoveWaitsUnlisted);
            if !self.has(Rule::RemoveAsksOwners) || self.settled(state, key, wait_unlisted) {
                out.push(Action::RemoveDone);
            }
        }
        if state.old.is_some() {
            out.push(Action::Fence);
        }
    }

    fn enabled_clients(&self, state: &State, out: &mut Vec<Action>) {
        let budget = &state.budget;
        if budget.put > 0 {
            for key in 0..self.keys {
                for mask in 1..=3u8 {
                    let wide = (self.replicas == 2) == (mask == 3);
                    // The nodes are alike, so the first put may as well go to the first.
                    let first = mask != 2 || budget.put < self.budget.put;
                    let up = (0..NODES)
                        .all(|n| mask >> n & 1 == 0 || state.master.peers[n].session != 0);
                    if wide && first && up {
                        out.push(Action::Reserve(key, mask));
                    }
                }
            }
        }
        self.enabled_reader(state, out);
        if state.master.removing.is_some() {
            return;
        }
        for key in (0..self.keys).filter(|k| state.acked[ix(*k)] > 0) {
            let refused = self.has(Rule::PlainRemoveRefused) && self.leased(state, key, 0);
            if budget.remove > 0 && !state.master.grace && !refused {
                out.push(Action::Remove(key, Force::Plain));
            }
            if budget.forced > 0 {
                out.push(Action::Remove(key, Force::Forced));
            }
        }
    }

    fn enabled_reader(&self, state: &State, out: &mut Vec<Action>) {
        if state.lease_runs {
            out.push(Action::ReaderLeaseEnd);
        }
        match state.reader {
            Reader::Idle if !state.lease_runs && state.budget.locate > 0 => {
                let current = &state.master.current;
                for c in state
                    .master
                    .claims
                    .iter()
                    .filter(|c| c.version == current[ix(c.key)])
                {
                    out.push(Action::Locate(*c, Teller::Present));
                }
                if let Some(old) = &state.old {
                    for c in old
                        .claims
                        .iter()
                        .filter(|c| c.version == old.current[ix(c.key)])
                    {
                        out.push(Action::Locate(*c, Teller::Old));
                    }
                }
            }
            Reader::Holding(_) => {
                if state.budget.read > 0 && state.lease_runs {
                    out.push(Action::StartRead);
                }
                if state.budget.report > 0 {
                    out.push(Action::ReportBad);
                }
            }
            Reader::Reading(_) | Reader::Waiting if !state.lease_runs => {
                out.push(Action::ReaderTimeout);
            }
            _ => {}
        }
    }
}

fn key_of(owed: &Owed) -> (NodeIx, Key, u8) {
    (owed.node, owed.key, owed.version)
}
