//! Answers that wait until every owner of older versions has retired them, or has surely stopped
//! serving and is marked.

use crate::directory::Directory;
use crate::event::RequestId;
use crate::node::{Mark, Node, NodeIx};
use crate::object::{Ix, LifeIx};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::id::{Seq, Session};
use snowskin_types::limits::SLICE_ITEMS;
use snowskin_types::link::ItemResult;
use snowskin_types::time::Millis;
use snowskin_types::version::Version;
use std::collections::BTreeMap;

/// A failed durable write is tried again after this time.
pub(crate) const PERSIST_RETRY: Millis = Millis(1_000);

/// Where an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// One key of a remove.
    Remove {
        call: RequestId,
        index: u32,
        found: bool,
    },
    /// One key of a sweeping remove.
    Sweep { call: RequestId },
    /// A publish that was answered `Pending`.
    Publish {
        node: NodeIx,
        session: Session,
        seq: Seq,
        index: u32,
        life: LifeIx,
        version: Version,
    },
}

/// Which owners an answer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Also nodes that may hold copies which they have not told yet.
    Awaited,
    /// Such nodes need the mark only: nothing older was known of this key.
    Marked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    /// None: only nodes that have not told all they hold are waited for.
    pub(crate) ix: Option<Ix>,
    pub(crate) up_to: Version,
    pub(crate) unknown: Unknown,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Default)]
pub(crate) struct Waits {
    all: BTreeMap<u64, Wait>,
    next: u64,
    /// Waits from this number on have to be looked at again.
    cursor: Option<u64>,
    again: bool,
}

impl Waits {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn without_entry(&self) -> usize {
        self.all.values().filter(|w| w.ix.is_none()).count()
    }

    fn insert(&mut self, wait: Wait) -> u64 {
        let id = self.next;
        self.next += 1;
        self.all.insert(id, wait);
        id
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Wait> {
        self.all.get(&id)
    }

    /// Something changed that many waits may rest on.
    pub(crate) fn recheck(&mut self) {
        match self.cursor {
            Some(_) => self.again = true,
            None if !self.all.is_empty() => self.cursor = Some(0),
            None => {}
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.cursor.is_some()
    }
}

/// Whether owners are through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Nobody serves an older version, now or after a failover.
    Yes,
    /// Somebody may.
    No,
    /// The mark of an absent owner could not be written.
    Failed,
}

impl Directory {
    /// What one owner's node means for an answer, and whether it wants a mark.
    fn settled_by(&self, node: &Node, known: bool, unknown: Unknown) -> (Settled, bool) {
        let stopped = node.stopped(self.now);
        let away = node.session.is_none() || stopped;
        let needs_mark = away || (!known && unknown == Unknown::Marked);
        let enough = stopped || (!known && unknown == Unknown::Marked);
        if !needs_mark {
            return (Settled::No, false);
        }
        match node.mark {
            Mark::Durable if enough => (Settled::Yes, false),
            Mark::Durable | Mark::Writing => (Settled::No, false),
            Mark::None | Mark::Clearing => (Settled::No, true),
            Mark::Failed(at) if at + PERSIST_RETRY <= self.now => (Settled::No, true),
            Mark::Failed(_) => (Settled::Failed, false),
        }
    }

    /// Whether all owners of versions up to `up_to` are through; asks for the marks that this needs.
    pub(crate) fn settled(&mut self, ix: Ix, up_to: Version, unknown: Unknown) -> Settled {
        self.settled_at(Some(ix), up_to, unknown)
    }

    /// The same, or of no entry: whether the nodes that have not told all they hold are through.
    pub(crate) fn settled_at(
        &mut self,
        ix: Option<Ix>,
        up_to: Version,
        unknown: Unknown,
    ) -> Settled {
        let mut result = Settled::Yes;
        let mut wanted: Vec<NodeIx> = Vec::new();
        let mut join = |ix: NodeIx, (settled, mark): (Settled, bool)| {
            if mark {
                wanted.push(ix);
            }
            result = match (result, settled) {
                (Settled::Failed, _) | (_, Settled::Failed) => Settled::Failed,
                (Settled::No, _) | (_, Settled::No) => Settled::No,
                _ => Settled::Yes,
            };
        };
        for o in ix.map_or(&[][..], |ix| self.table.entry(ix).obligations()) {
            if o.version <= up_to
                && let Some((nix, node)) = self.nodes.of_life(o.life)
            {
                join(nix, self.settled_by(node, true, unknown));
            }
        }
        if self.incomplete > 0 {
            for (nix, node) in self.nodes.iter().filter(|(_, n)| !n.complete) {
                join(nix, self.settled_by(node, false, unknown));
            }
        }
        for nix in wanted {
            self.want_mark(nix);
        }
        result
    }

    /// Adds a wait, or renews the one of the same publish. False when there are too many.
    pub(crate) fn await_owners(
        &mut self,
        ix: Ix,
        up_to: Version,
        unknown: Unknown,
        outcome: Outcome,
    ) -> bool {
        if let Outcome::Publish { life, version, .. } = outcome {
            for id in self.table.entry(ix).waits().to_vec() {
                if let Some(wait) = self.waits.all.get_mut(&id)
                    && let Outcome::Publish {
                        life: l,
                        version: v,
                        ..
                    } = wait.outcome
                    && (l, v) == (life, version)
                {
                    wait.outcome = outcome;
                    return true;
                }
            }
        }
        if self.waits.len() >= self.config.waits_max {
            return false;
        }
        let id = self.waits.insert(Wait {
            ix: Some(ix),
            up_to,
            unknown,
            outcome,
        });
        self.table.entry_mut(ix).rare_mut().waits.push(id);
        true
    }

    /// Adds a wait for the nodes that have not told all they hold. The caller has seen to the room.
    pub(crate) fn await_unlisted(&mut self, outcome: Outcome) {
        self.waits.insert(Wait {
            ix: None,
            up_to: Version::NONE,
            unknown: Unknown::Awaited,
            outcome,
        });
    }

    /// Whether the publish of a version waits for owners of older ones.
    pub(crate) fn publish_waits(&self, ix: Ix, version: Version) -> bool {
        let waits = self.table.entry(ix).waits().iter();
        let mut waits = waits.filter_map(|id| self.waits.get(*id));
        waits.any(|w| matches!(w.outcome, Outcome::Publish { version: v, .. } if v == version))
    }

    /// Whether all owners of versions before the current one are through.
    pub(crate) fn publish_settled(&mut self, ix: Ix, version: Version) -> bool {
        let unknown = self.unknown_of(ix);
        let below = Version::from_raw(version.raw() - 1);
        !self.publish_waits(ix, version) && self.settled(ix, below, unknown) == Settled::Yes
    }

    /// Looks again at all that waits for this entry.
    pub(crate) fn recheck_entry(&mut self, ix: Ix) {
        for id in self.table.entry(ix).waits().to_vec() {
            self.recheck_wait(id);
        }
    }

    fn recheck_wait(&mut self, id: u64) {
        let Some(wait) = self.waits.all.get(&id).cloned() else {
            return;
        };
        let settled = self.settled_at(wait.ix, wait.up_to, wait.unknown);
        let publish = matches!(wait.outcome, Outcome::Publish { .. });
        if settled == Settled::No || (settled == Settled::Failed && publish) {
            return;
        }
        self.waits.all.remove(&id);
        if let Some(ix) = wait.ix {
            let entry = self.table.entry_mut(ix);
            let waits = &mut entry.rare_mut().waits;
            waits.retain(|w| *w != id);
            if waits.is_empty() {
                waits.shrink_to_fit();
            }
            if let Outcome::Publish { version, .. } = wait.outcome
                && entry.version == version
            {
                entry.set_strict(false);
            }
        }
        self.complete(wait.outcome, wait.ix, settled);
    }

    fn complete(&mut self, outcome: Outcome, ix: Option<Ix>, settled: Settled) {
        if let Outcome::Sweep { call } = outcome {
            return self.swept_one(call, settled == Settled::Failed);
        }
        let Some(ix) = ix else {
            return; // Only sweeps wait without an entry.
        };
        match outcome {
            Outcome::Sweep { .. } => {}
            Outcome::Remove { call, index, found } => {
                let result = match settled {
                    Settled::Failed => Err(self.mark_failure(ix)),
                    _ if found => Ok(()),
                    _ => Err(self.absent_failure(ix)),
                };
                self.removed_one(call, index, result);
            }
            Outcome::Publish {
                node,
                session,
                seq,
                index,
                life,
                version,
            } => {
                if self.nodes.get(node).and_then(|n| n.session) != Some(session) {
                    return;
                }
                let entry = self.table.entry(ix);
                let visible = entry.version == version && entry.claim(life).is_some();
                let result = if visible {
                    ItemResult::Ok
                } else {
                    ItemResult::Refused
                };
                self.outbox.ack(node, seq, index, result);
            }
        }
    }

    pub(crate) fn mark_failure(&self, ix: Ix) -> Failure {
        let failure = Failure::new(
            Code::PersistentFail,
            Stage::Publish,
            "an owner is away and the note of this change could not be stored; the object may be gone",
        );
        match self.table.name(ix) {
            Some(name) => failure.with_key(&name.key),
            None => failure,
        }
    }

    /// One slice of looking at all waits again.
    pub(crate) fn recheck_slice(&mut self) {
        let Some(cursor) = self.waits.cursor else {
            return;
        };
        let range = self.waits.all.range(cursor..).take(SLICE_ITEMS);
        let ids: Vec<u64> = range.map(|(id, _)| *id).collect();
        self.waits.cursor = ids.last().map(|id| id + 1);
        for id in ids {
            let ix = self.waits.all.get(&id).and_then(|w| w.ix);
            self.recheck_wait(id);
            if let Some(ix) = ix {
                self.tidy(ix);
            }
        }
        if self.waits.cursor.is_none() && std::mem::take(&mut self.waits.again) {
            self.waits.recheck();
        }
    }
}
