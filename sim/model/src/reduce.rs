//! Takes out of a state what can never matter again, so that states that differ only in it are
//! one state. Each step here is sound because what it removes would be ignored for ever: old
//! messages by their receivers, numbers by everybody who only compares them.
//!
//! Runs that drop one of the rules it rests on are explored without it.

use crate::rules::{Config, Rule};
use crate::state::{ALL_NODES, Msg, NodeIx, Reader, Stage, Stamp, State, TERM_SPAN, ix};

impl Config {
    /// Brings a state into its canonical form.
    pub(crate) fn reduce(&self, s: &mut State) {
        let rests_on = [
            Rule::Numbered,
            Rule::FreshNumber,
            Rule::SessionChecked,
            Rule::AnswersChecked,
            Rule::RetiredNumbered,
        ];
        if !self.reduce || !rests_on.into_iter().all(|rule| self.has(rule)) {
            return;
        }
        let mut net = std::mem::take(&mut s.net);
        net.retain(|msg| !self.ignored_for_ever(s, msg));
        s.net = net;
        for node in ALL_NODES {
            forget_useless_refusals(s, node);
            s.nodes[ix(node)].entries.sort_unstable();
            renumber(s, node);
        }
        if !self.long_grace {
            s.master.grace_nonce = 0;
        }
        if self.has(Rule::LastRemembered) {
            s.master.removed_at = Default::default();
        }
    }

    /// Sessions, terms and numbers only grow, so what is outdated now stays so.
    fn ignored_for_ever(&self, s: &State, msg: &Msg) -> bool {
        match msg {
            Msg::Publish { at, .. }
            | Msg::Retract { at, .. }
            | Msg::InventoryEnd { at, .. }
            | Msg::Retired { at, .. } => {
                let peer = &s.master.peers[ix(at.node)];
                at.term != s.master.term || at.session != peer.session || at.seq <= peer.seq
            }
            Msg::PublishAck {
                at, key, version, ..
            }
            | Msg::RetractAck {
                at, key, version, ..
            } => {
                let own = &s.nodes[ix(at.node)];
                let awaited = own.find(*key, *version).is_some_and(|i| {
                    let entry = &own.entries[i];
                    let asks = matches!(
                        entry.stage,
                        Stage::Publishing | Stage::Retracting | Stage::Filling
                    );
                    asks && entry.seq == at.seq
                });
                at.term != own.term || at.session != own.session || !awaited
            }
            Msg::Freed {
                node,
                term,
                session,
                ..
            } => *term != s.master.term || *session != s.master.peers[ix(*node)].session,
            Msg::Retire { node, term, .. } => {
                *term != s.master.term || *term < s.nodes[ix(*node)].term
            }
            Msg::Write {
                node,
                epoch,
                key,
                version,
            } => {
                let own = &s.nodes[ix(*node)];
                (*epoch != own.epoch && self.has(Rule::EpochInWrite))
                    || own.retired.contains(&(*key, *version))
                    || (version / TERM_SPAN < own.term && self.has(Rule::WriteOfTerm))
            }
            Msg::Location { nonce, .. } => *nonce != s.nonce || s.reader != Reader::Waiting,
            Msg::Read { .. } | Msg::Report { .. } => false,
        }
    }
}

/// A version that no write under way names needs no memory of its refusal.
fn forget_useless_refusals(s: &mut State, node: NodeIx) {
    let mut retired = std::mem::take(&mut s.nodes[ix(node)].retired);
    retired.retain(|(k, v)| {
        s.net.any(|m| {
            matches!(m, Msg::Write { node: n, key, version, .. }
                if (*n, key, version) == (node, k, v))
        })
    });
    s.nodes[ix(node)].retired = retired;
}

/// Only the order of a session's numbers matters, so they are replaced by their ranks; and only
/// whether master and node agree on the session, so a session that both have is session 1.
fn renumber(s: &mut State, node: NodeIx) {
    let n = ix(node);
    let agreed = s.master.peers[n].session == s.nodes[n].session;
    let mut numbers = vec![s.nodes[n].seq];
    if agreed {
        numbers.push(s.master.peers[n].seq);
    }
    for entry in &mut s.nodes[n].entries {
        let waits = matches!(
            entry.stage,
            Stage::Publishing | Stage::Retracting | Stage::Filling
        );
        if !waits {
            entry.seq = 0;
        }
        numbers.push(entry.seq);
    }
    numbers.push(0);
    numbers.extend(
        s.net
            .iter()
            .filter_map(stamp)
            .filter(|at| at.node == node)
            .map(|at| at.seq),
    );
    numbers.sort_unstable();
    numbers.dedup();
    let rank =
        |seq: u8| u8::try_from(numbers.partition_point(|known| *known < seq)).unwrap_or(u8::MAX);
    let same = s.nodes[n].session == 1 && numbers.iter().all(|seq| rank(*seq) == *seq);
    if same {
        return;
    }
    s.nodes[n].seq = rank(s.nodes[n].seq);
    s.nodes[n].session = 1;
    if agreed {
        s.master.peers[n].seq = rank(s.master.peers[n].seq);
        s.master.peers[n].session = 1;
    }
    for entry in &mut s.nodes[n].entries {
        entry.seq = rank(entry.seq);
    }
    let of_node = |m: &Msg| match m {
        Msg::Freed { node: n, .. } => *n == node,
        other => stamp(other).is_some_and(|at| at.node == node),
    };
    for mut msg in s.net.take_where(of_node) {
        if let Some(at) = stamp_mut(&mut msg) {
            at.seq = rank(at.seq);
            at.session = 1;
        }
        if let Msg::Freed { session, .. } = &mut msg {
            *session = 1;
        }
        s.net.insert(msg);
    }
}

fn stamp(msg: &Msg) -> Option<Stamp> {
    match msg {
        Msg::Publish { at, .. }
        | Msg::PublishAck { at, .. }
        | Msg::Retract { at, .. }
        | Msg::RetractAck { at, .. }
        | Msg::InventoryEnd { at, .. }
        | Msg::Retired { at, .. } => Some(*at),
        _ => None,
    }
}

fn stamp_mut(msg: &mut Msg) -> Option<&mut Stamp> {
    match msg {
        Msg::Publish { at, .. }
        | Msg::PublishAck { at, .. }
        | Msg::Retract { at, .. }
        | Msg::RetractAck { at, .. }
        | Msg::InventoryEnd { at, .. }
        | Msg::Retired { at, .. } => Some(at),
        _ => None,
    }
}
