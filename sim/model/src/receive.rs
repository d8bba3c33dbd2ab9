//! What each message does where it arrives.

use crate::apply::{break_promise, reader_gives_up};
use crate::rules::{Config, Rule};
use crate::state::{
    Claim, Entry, Item, Key, LEASE_BROKEN, Msg, NodeIx, Owed, Pin, Reader, STALE_READ, Stage,
    Stamp, State, TERM_SPAN, Version, ix,
};

/// What the directory says to a publish or inventory item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Admitted,
    Refused,
}

impl Config {
    /// Delivers one message.
    pub(crate) fn receive(&self, s: &mut State, msg: Msg) {
        match msg {
            Msg::Write {
                node,
                epoch,
                key,
                version,
            } => self.on_write(s, node, epoch, key, version),
            Msg::Publish { at, epoch, item } => self.on_publish(s, at, epoch, item),
            Msg::PublishAck {
                at,
                key,
                version,
                ok,
            } => self.on_publish_ack(s, at, key, version, ok),
            Msg::Retract { at, key, version } => self.on_retract(s, at, key, version),
            Msg::RetractAck {
                at,
                key,
                version,
                granted,
            } => {
                self.on_retract_ack(s, at, key, version, granted);
            }
            Msg::Freed {
                node,
                term,
                session,
                key,
                version,
            } => {
                if term == s.master.term && s.master.peers[ix(node)].session == session {
                    self.absent(s, Owed { node, key, version });
                }
            }
            Msg::InventoryEnd { at, epoch, items } => self.on_inventory_end(s, at, epoch, &items),
            Msg::Retire {
                node,
                term,
                key,
                version,
            } => self.on_retire(s, node, term, key, version),
            Msg::Retired { at, key, version } => self.on_retired(s, at, key, version),
            Msg::Location { nonce, claim } => {
                let waiting = s.reader == Reader::Waiting && nonce == s.nonce;
                if waiting && (s.lease_runs || !self.has(Rule::LeaseFromSend)) {
                    s.lease_runs = true;
                    s.reader = Reader::Holding(claim);
                    if !self.has(Rule::LeaseFromSend) {
                        s.promise = Some(claim);
                    }
                }
            }
            Msg::Read { nonce, claim, late } => self.on_read(s, nonce, claim, late),
            Msg::Report { claim } => {
                if s.master.claims.remove(&claim) {
                    if self.has(Rule::ReportHides) {
                        s.master.hidden.insert(claim);
                    } else {
                        self.forget_evicted(s, claim.key);
                    }
                }
            }
        }
    }

    /// Checks term, session and number of a numbered message, and notes the number.
    fn intake(&self, s: &mut State, at: Stamp, answer_to_old: Option<Msg>) -> bool {
        let peer = &mut s.master.peers[ix(at.node)];
        let fits = peer.session == at.session || !self.has(Rule::SessionChecked);
        if at.term != s.master.term || peer.session == 0 || !fits {
            return false;
        }
        if self.has(Rule::Numbered) {
            if at.seq <= peer.seq {
                if let (Some(answer), false) = (answer_to_old, self.has(Rule::FreshNumber)) {
                    s.net.insert(answer);
                }
                return false;
            }
            peer.seq = at.seq;
        }
        true
    }

    fn on_write(&self, s: &mut State, node: NodeIx, epoch: u8, key: Key, version: Version) {
        let own = &mut s.nodes[ix(node)];
        let refused = own.find(key, version).is_some()
            || (self.has(Rule::EpochInWrite) && epoch != own.epoch)
            || own.retired.contains(&(key, version))
            || (self.has(Rule::WriteOfTerm) && version / TERM_SPAN != own.term);
        if refused {
            return;
        }
        let early = !self.has(Rule::CommitFirst);
        own.dram = (key, version);
        own.entries.push(Entry {
            key,
            version,
            dram: true,
            ssd: false,
            stage: if early {
                Stage::Filling
            } else {
                Stage::Committed
            },
            seq: 0,
            acked: false,
            confirmed: true,
            tombstone: false,
        });
        if early {
            let at = own.entries.len() - 1;
            self.send(s, node, at, true);
        }
    }

    /// Says whether the directory has to refuse a version that a node says it holds.
    fn refuses(&self, s: &State, node: NodeIx, epoch: u8, item: Item) -> bool {
        let Item { key, version, .. } = item;
        let master = &s.master;
        let mark = s.marks[ix(node)];
        let this_term = version / TERM_SPAN == master.term;
        let marked = mark != 0 && mark != master.term && !this_term;
        let known = master.claims.contains(&Claim {
            node,
            epoch,
            key,
            version,
        }) || master.hidden.contains(&Claim {
            node,
            epoch,
            key,
            version,
        }) || master.placed.contains(&Owed { node, key, version });
        let stray = self.has(Rule::PublishNeedsPlace)
            && this_term
            && !known
            && master.peers[ix(node)].listed;
        let below = self.has(Rule::Floor) && version <= master.floor[ix(key)];
        marked || stray || below || version < master.current[ix(key)]
    }

    /// Decides on a publish, and does what follows from it at the master.
    fn admit(&self, s: &mut State, node: NodeIx, epoch: u8, item: Item) -> Verdict {
        let Item { key, version, .. } = item;
        let owed = Owed { node, key, version };
        if self.refuses(s, node, epoch, item) {
            s.master.placed.remove(&owed);
            if self.has(Rule::RefusalIsOwed) {
                s.master.retire.insert(owed);
            }
            return Verdict::Refused;
        }
        if version > s.master.current[ix(key)] {
            s.master.current[ix(key)] = version;
            self.outdate(s, key, version - 1);
            break_promise(s, |c| c.key == key && c.version < version);
        }
        let claim = Claim {
            node,
            epoch,
            key,
            version,
        };
        s.master.placed.remove(&owed);
        s.master.hidden.remove(&claim);
        s.master.claims.insert(claim);
        Verdict::Admitted
    }

    fn on_publish(&self, s: &mut State, at: Stamp, epoch: u8, item: Item) {
        let Item {
            key,
            version,
            acked,
        } = item;
        let answer = |ok| Msg::PublishAck {
            at,
            key,
            version,
            ok,
        };
        if !self.intake(s, at, Some(answer(true))) || self.waits_for_grace(s, acked) {
            return;
        }
        match self.admit(s, at.node, epoch, item) {
            Verdict::Refused => {
                if !self.has(Rule::RefusalIsOwed) {
                    s.net.insert(answer(false));
                }
            }
            Verdict::Admitted => {
                if self.put_settled(s, key) {
                    if !acked {
                        self.mark_absent(s, key);
                    }
                    s.net.insert(answer(true));
                }
            }
        }
    }

    fn on_publish_ack(&self, s: &mut State, at: Stamp, key: Key, version: Version, ok: bool) {
        let Some(i) = self.answered(s, at, key, version, &[Stage::Publishing, Stage::Filling])
        else {
            return;
        };
        let node = ix(at.node);
        if ok {
            let entry = &mut s.nodes[node].entries[i];
            if entry.stage == Stage::Publishing {
                entry.stage = Stage::Published;
                entry.acked = true;
                entry.confirmed = true;
            }
            s.acked[ix(key)] = s.acked[ix(key)].max(version);
        } else {
            self.give_back(s, at.node, i);
        }
    }

    fn on_retract(&self, s: &mut State, at: Stamp, key: Key, version: Version) {
        let answer = |granted| Msg::RetractAck {
            at,
            key,
            version,
            granted,
        };
        if !self.intake(s, at, Some(answer(true))) {
            return;
        }
        if self.leased(s, key, version) {
            s.net.insert(answer(false));
            return;
        }
        let owed = Owed {
            node: at.node,
            key,
            version,
        };
        let of = |c: &Claim| (c.node, c.key, c.version) == (at.node, key, version);
        let claimed = !s.master.claims.take_where(of).is_empty();
        let hidden = !s.master.hidden.take_where(of).is_empty();
        if self.has(Rule::GrantedIsOwed) && (claimed || hidden) {
            s.master.placed.insert(owed);
        }
        self.forget_evicted(s, key);
        s.net.insert(answer(true));
    }

    fn on_retract_ack(&self, s: &mut State, at: Stamp, key: Key, version: Version, ok: bool) {
        let Some(i) = self.answered(s, at, key, version, &[Stage::Retracting]) else {
            return;
        };
        if !ok {
            s.nodes[ix(at.node)].entries[i].stage = Stage::Published;
        } else if self.give_back(s, at.node, i) && self.has(Rule::GrantedIsOwed) {
            let Stamp {
                node,
                term,
                session,
                ..
            } = at;
            s.net.insert(Msg::Freed {
                node,
                term,
                session,
                key,
                version,
            });
        }
    }

    /// Finds the entry that an answer is for, if the node accepts the answer.
    fn answered(
        &self,
        s: &State,
        at: Stamp,
        key: Key,
        version: Version,
        stages: &[Stage],
    ) -> Option<usize> {
        let own = &s.nodes[ix(at.node)];
        let checked = self.has(Rule::AnswersChecked);
        if checked && (at.term != own.term || at.session != own.session) {
            return None;
        }
        own.entries.iter().position(|e| {
            (e.key, e.version) == (key, version)
                && stages.contains(&e.stage)
                && (e.seq == at.seq || !checked)
        })
    }

    /// Drops an entry, or leaves it to the end of its pin. Says whether it was dropped.
    fn give_back(&self, s: &mut State, node: NodeIx, i: usize) -> bool {
        let pinned = self.pinned(s, node, &s.nodes[ix(node)].entries[i]);
        if pinned {
            s.nodes[ix(node)].entries[i].stage = Stage::Retracted;
        } else {
            self.drop_entry(&mut s.nodes[ix(node)], i);
        }
        !pinned
    }

    fn on_inventory_end(&self, s: &mut State, at: Stamp, epoch: u8, items: &[Item]) {
        if !self.intake(s, at, None) {
            return;
        }
        let node = at.node;
        let held = |c: &Claim| {
            c.node != node
                || items
                    .iter()
                    .any(|i| (i.key, i.version) == (c.key, c.version))
        };
        s.master.claims.retain(held);
        s.master.hidden.retain(held);
        for item in items {
            let claim = Claim {
                node,
                epoch,
                key: item.key,
                version: item.version,
            };
            let owed = Owed {
                node,
                key: item.key,
                version: item.version,
            };
            if s.master.claims.contains(&claim) || s.master.hidden.contains(&claim) {
                continue;
            }
            // The end of the inventory only tells who owns what. A claim comes from a publish
            // alone: the item may be one whose retract was granted a moment ago.
            if self.refuses(s, node, epoch, *item) || s.master.retire.contains(&owed) {
                s.master.placed.remove(&owed);
                if self.has(Rule::RefusalIsOwed) {
                    s.master.retire.insert(owed);
                }
            } else if !self.has(Rule::EndMakesNoClaim) {
                self.admit(s, node, epoch, *item);
            } else if self.has(Rule::PendingIsOwner) {
                s.master.placed.insert(owed);
            }
        }
        self.close_inventory(s, node);
    }

    /// All that the node holds is known.
    pub(crate) fn close_inventory(&self, s: &mut State, node: NodeIx) {
        let peer = &mut s.master.peers[ix(node)];
        peer.inventoried = true;
        peer.listed = true;
        for key in 0..self.keys {
            self.forget_evicted(s, key);
        }
    }

    fn on_retire(&self, s: &mut State, node: NodeIx, term: u8, key: Key, version: Version) {
        if term != s.nodes[ix(node)].term {
            return;
        }
        if let Some(i) = s.nodes[ix(node)].find(key, version) {
            let pinned = self.pinned(s, node, &s.nodes[ix(node)].entries[i]);
            if pinned && !self.has(Rule::RetireIgnoresPins) {
                return;
            }
            s.nodes[ix(node)].entries[i].tombstone = true;
            self.give_back(s, node, i);
        }
        let own = &mut s.nodes[ix(node)];
        if self.has(Rule::OneShotRetired) {
            own.retired.insert((key, version));
        }
        if self.has(Rule::RetiredNumbered) {
            own.seq += 1;
        }
        let at = Stamp {
            node,
            term,
            session: own.session,
            seq: own.seq,
        };
        s.net.insert(Msg::Retired { at, key, version });
    }

    fn on_retired(&self, s: &mut State, at: Stamp, key: Key, version: Version) {
        if at.term != s.master.term {
            return;
        }
        if self.has(Rule::RetiredNumbered) && !self.intake(s, at, None) {
            return;
        }
        self.absent(
            s,
            Owed {
                node: at.node,
                key,
                version,
            },
        );
    }

    /// The owner has confirmed that it does not serve this version any more.
    fn absent(&self, s: &mut State, owed: Owed) {
        s.master.placed.remove(&owed);
        s.master.retire.remove(&owed);
        self.forget_evicted(s, owed.key);
    }

    fn on_read(&self, s: &mut State, nonce: u8, claim: Claim, late: bool) {
        let Claim {
            node,
            epoch,
            key,
            version,
        } = claim;
        let serving = !self.has(Rule::ServingLease) || s.nodes[ix(node)].serving;
        let own = &mut s.nodes[ix(node)];
        let right_life = epoch == own.epoch || !self.has(Rule::EpochInRead);
        let found = own.entries.iter().find(|e| {
            e.key == key
                && (e.version == version || !self.has(Rule::VersionInRead))
                && !matches!(e.stage, Stage::Filling | Stage::Retracted)
                && (e.confirmed || !self.confirm)
        });
        match found {
            Some(entry) if right_life && serving => {
                let (version, dram) = (entry.version, entry.dram);
                own.pin = Some(Pin {
                    key,
                    version,
                    dram,
                    wanted: claim.version,
                });
                if late {
                    s.broken |= STALE_READ;
                }
            }
            _ => {
                if s.promise == Some(claim) && s.lease_runs && s.nonce == nonce {
                    s.broken |= LEASE_BROKEN;
                }
                s.net.insert(Msg::Report { claim });
                if matches!(s.reader, Reader::Reading(_)) {
                    reader_gives_up(s);
                }
            }
        }
    }
}
