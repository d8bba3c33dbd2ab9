//! Numbered items of a node: publish, retract, absent, end of the inventory.

use crate::directory::Directory;
use crate::effect::Counter;
use crate::node::{Mark, NodeIx};
use crate::object::{Claim, Ix, LifeIx, NO_GROUP, Owes};
use crate::waits::{Outcome, Settled, Unknown};
use snowskin_types::id::{Seq, Session};
use snowskin_types::key::ObjectName;
use snowskin_types::limits::{NODE_RETRY, SLICE_ITEMS};
use snowskin_types::link::{ItemResult, NodeItem};
use snowskin_types::object::{Attributes, Shape, Tier};
use snowskin_types::time::{Millis, Now};
use snowskin_types::version::Version;

/// A hard-pinned object is not worth asking for again soon.
const HARD_PIN_HOLD: Millis = Millis(10_000);
/// Group members named to their owners after one retract.
const EVICT_NEXT_MAX: usize = 64;
/// Publishes that may wait for the end of the grace with the master; further ones are sent again.
const DEFERRED_MAX: usize = 65_536;

/// A publish in all its parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) name: ObjectName,
    pub(crate) version: Version,
    pub(crate) shape: Shape,
    pub(crate) tier: Tier,
    pub(crate) attributes: Attributes,
    pub(crate) acked: bool,
    pub(crate) inventory: bool,
}

/// A publish that waits for the end of the grace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Deferred {
    from: Origin,
    item: Published,
}

/// Where an item came from, and where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: NodeIx,
    pub(crate) life: LifeIx,
    pub(crate) session: Session,
    pub(crate) seq: Seq,
    pub(crate) index: u32,
}

impl Directory {
    pub(crate) fn on_item(&mut self, from: Origin, item: NodeItem) -> ItemResult {
        match item {
            NodeItem::Publish {
                name,
                version,
                shape,
                tier,
                attributes,
                acked,
                inventory,
            } => self.on_publish(
                from,
                Published {
                    name,
                    version,
                    shape,
                    tier,
                    attributes,
                    acked,
                    inventory,
                },
            ),
            NodeItem::Retract { name, version, bad } => self.on_retract(from, &name, version, bad),
            NodeItem::Absent { name, version } => {
                self.on_absent(from.life, &name, version);
                ItemResult::Ok
            }
            NodeItem::InventoryEnd => {
                self.on_inventory_end(from.node);
                ItemResult::Ok
            }
        }
    }

    /// Whether a version is outdated, or not this node's to tell; and from when it may be retired.
    fn refusal(&self, from: Origin, ix: Option<Ix>, version: Version) -> Option<Now> {
        let node = self.nodes.get(from.node)?;
        let after_grace = if version.term() < self.term {
            self.grace_end
        } else {
            self.now
        };
        if version < node.refuse_below {
            // The node has not been allowed to serve since it missed the change: nothing protects it.
            return Some(self.now);
        }
        if version.is_none() || version.term() > self.term {
            return Some(self.now);
        }
        let entry = ix.map(|ix| self.table.entry(ix));
        let owned = entry.is_some_and(|e| {
            let claimed = e.version == version && e.claim(from.life).is_some();
            let obligation = e.obligation(from.life, version);
            claimed || obligation.is_some_and(|o| o.owes != Owes::Retiring)
        });
        if self.placement_matters() && version.term() == self.term && !owned {
            return Some(self.now);
        }
        let entry = entry?;
        if version <= entry.floor() {
            let known = entry.floor().term() == self.term;
            return Some(if known { self.now } else { after_grace });
        }
        let obligation = entry.obligation(from.life, version);
        let retiring = obligation.is_some_and(|o| o.owes == Owes::Retiring);
        (version < entry.version || retiring).then_some(after_grace)
    }

    fn placement_matters(&self) -> bool {
        #[cfg(known_bugs)]
        return !self.bugs.no_sequence_numbers;
        #[cfg(not(known_bugs))]
        true
    }

    fn entry_for(&mut self, name: &ObjectName) -> Option<Ix> {
        if let Some(ix) = self.table.find_name(name) {
            return Some(ix);
        }
        let tenant = self.table.intern(&name.tenant)?;
        let key = name.key.as_bytes();
        let ix = self
            .table
            .insert(self.table.hash(tenant, key), tenant, key)?;
        self.count_in(ix);
        Some(ix)
    }

    pub(crate) fn entry_of(&mut self, name: &ObjectName) -> Option<Ix> {
        self.entry_for(name)
    }

    fn on_publish(&mut self, from: Origin, item: Published) -> ItemResult {
        let known = self.table.find_name(&item.name);
        if self.was_swept(&item) {
            self.count(Counter::PublishRefused, 1);
            let result = self.refuse(from, &item, self.now);
            if let Some(ix) = self.table.find_name(&item.name) {
                self.await_swept(ix, &item);
            }
            return result;
        }
        if let Some(retire_from) = self.refusal(from, known, item.version) {
            self.count(Counter::PublishRefused, 1);
            return self.refuse(from, &item, retire_from);
        }
        let Some(ix) = self.entry_for(&item.name) else {
            // The table is full: the node keeps it and asks again.
            return ItemResult::Pending;
        };
        let current = self.table.entry(ix).version;
        if item.version > current && !item.acked && self.in_grace() {
            return self.defer(from, ix, item);
        }
        if item.version > current {
            let strict = self.incomplete > 0 && self.may_replace(from, ix, &item);
            self.switch(ix, &item);
            self.table.entry_mut(ix).set_strict(strict);
        }
        let unknown = self.unknown_of(ix);
        self.claim(from, ix, &item);
        if item.acked && item.inventory {
            return ItemResult::Ok;
        }
        let below = Version::from_raw(item.version.raw() - 1);
        if self.settled(ix, below, unknown) == Settled::Yes {
            self.table.entry_mut(ix).set_strict(false);
            self.table.entry_mut(ix).trim();
            return ItemResult::Ok;
        }
        let outcome = Outcome::Publish {
            node: from.node,
            session: from.session,
            seq: from.seq,
            index: from.index,
            life: from.life,
            version: item.version,
        };
        // Without room to remember it the node's next try asks again.
        self.await_owners(ix, below, unknown, outcome);
        ItemResult::Pending
    }

    /// Whether readers may have been promised an older version than one that becomes current: what is
    /// known here says so, or the writer asked for a replace. Of a put of a former term nobody knows what
    /// its writer asked for.
    fn may_replace(&self, from: Origin, ix: Ix, item: &Published) -> bool {
        if item.acked && item.inventory {
            return false;
        }
        let entry = self.table.entry(ix);
        let placed = entry.obligation(from.life, item.version);
        !entry.version.is_none()
            || item.version.term() < self.term
            || placed.is_some_and(|o| o.replaces)
    }

    /// Which nodes the put of the current version waits for. A first put needs only the marks of those
    /// that may know more; a replace, and every further replica of one, also waits for them.
    pub(crate) fn unknown_of(&self, ix: Ix) -> Unknown {
        if self.table.entry(ix).strict() {
            Unknown::Awaited
        } else {
            Unknown::Marked
        }
    }

    /// Refusing is an obligation: the order to retire follows, nothing is dropped on the spot.
    fn refuse(&mut self, from: Origin, item: &Published, retire_from: Now) -> ItemResult {
        let Some(ix) = self.entry_for(&item.name) else {
            return ItemResult::Pending;
        };
        let entry = self.table.entry(ix);
        if entry.version == item.version && entry.claim(from.life).is_some() {
            self.drop_claim(ix, from.life);
        }
        self.must_retire(ix, from.life, item.version, item.shape.size, retire_from);
        ItemResult::Refused
    }

    /// A put that was never acknowledged waits for the end of the grace, like any replace.
    fn defer(&mut self, from: Origin, ix: Ix, item: Published) -> ItemResult {
        if self
            .table
            .entry(ix)
            .obligation(from.life, item.version)
            .is_none()
        {
            let size = item.shape.size;
            self.oblige(ix, from.life, item.version, size, Owes::Placed);
        }
        let key = (from.node, ix, item.version);
        if self.deferred.len() < DEFERRED_MAX || self.deferred.contains_key(&key) {
            self.deferred.insert(key, Deferred { from, item });
        }
        ItemResult::Pending
    }

    /// One slice of the publishes that waited for the end of the grace.
    pub(crate) fn deferred_slice(&mut self) {
        for _ in 0..SLICE_ITEMS {
            let Some((_, Deferred { from, item })) = self.deferred.pop_first() else {
                return;
            };
            if self.nodes.get(from.node).and_then(|n| n.session) != Some(from.session) {
                continue;
            }
            // The owner may have given it up meanwhile, or told it again under a fresh number.
            let ix = self.table.find_name(&item.name);
            let waiting = ix.is_some_and(|ix| {
                let obligation = self.table.entry(ix).obligation(from.life, item.version);
                obligation.is_some_and(|o| o.owes == Owes::Placed)
            });
            let result = if waiting {
                self.on_publish(from, item)
            } else {
                ItemResult::Refused
            };
            if result != ItemResult::Pending {
                self.outbox.ack(from.node, from.seq, from.index, result);
            }
        }
    }

    /// The new version becomes current; all owners of older ones have to retire them at once.
    fn switch(&mut self, ix: Ix, item: &Published) {
        let below = Version::from_raw(item.version.raw() - 1);
        // What a reader was promised of the key it finds in the new version.
        let leased = self.table.entry(ix).lease();
        self.retire_up_to(ix, below);
        self.end_lease(ix);
        let now = self.now;
        let entry = self.table.entry_mut(ix);
        entry.version = item.version;
        entry.size = item.shape.size;
        entry.checksum = item.shape.checksum;
        entry.touch(now);
        if entry.rare().is_some() {
            // A floor below the current version says nothing more.
            entry.rare_mut().floor = Version::NONE;
        }
        self.set_attributes(ix, &item.attributes);
        self.prolong(ix, leased);
        self.count(Counter::Published, u64::from(!item.inventory));
    }

    fn set_attributes(&mut self, ix: Ix, attributes: &Attributes) {
        let tenant = self.table.entry(ix).tenant;
        let old = self.table.entry(ix).group();
        let new = match &attributes.group {
            Some(name) => self.groups.join(tenant, name, ix),
            None => NO_GROUP,
        };
        if old != NO_GROUP && old != new {
            self.groups.leave(old, ix);
        }
        let entry = self.table.entry_mut(ix);
        let plain = *attributes == Attributes::default();
        if plain && entry.rare().is_none() {
            return;
        }
        let rare = entry.rare_mut();
        rare.group = new;
        rare.attributes = (!plain).then(|| Box::new(attributes.clone()));
    }

    /// Names the node as holding the current version.
    fn claim(&mut self, from: Origin, ix: Ix, item: &Published) {
        if !self.table.entry(ix).obligations().is_empty() {
            self.release(ix, from.life, item.version);
        }
        let generation = self.nodes.life(from.life).map_or(0, |l| l.generation);
        self.owner_spoke(ix, from.life, item.inventory);
        let entry = self.table.entry_mut(ix);
        if let Some(claim) = entry.claim_mut(from.life) {
            claim.generation = generation;
            claim.set_tier(item.tier);
        } else {
            self.count_out(ix);
            let claim = Claim::new(from.life, generation, item.tier);
            self.table.entry_mut(ix).add_claim(claim);
            self.count_in(ix);
        }
        self.table.entry_mut(ix).trim();
    }

    fn on_retract(
        &mut self,
        from: Origin,
        name: &ObjectName,
        version: Version,
        bad: bool,
    ) -> ItemResult {
        let result = self.retract(from, name, version, bad);
        if result != ItemResult::Ok {
            self.count(Counter::RetractRefused, 1);
        }
        result
    }

    fn retract(
        &mut self,
        from: Origin,
        name: &ObjectName,
        version: Version,
        bad: bool,
    ) -> ItemResult {
        let Some(ix) = self.table.find_name(name) else {
            return self.retract_unknown(from, name, version, bad);
        };
        let entry = self.table.entry(ix);
        let Some(_) = entry.claim(from.life).filter(|_| entry.version == version) else {
            return match entry.obligation(from.life, version).map(|o| o.owes) {
                Some(Owes::Placed) => {
                    // It may be told again, and is the put of a replace still.
                    let placed = entry.obligation(from.life, version);
                    let replaces = placed.is_some_and(|o| o.replaces);
                    let size = self.release_size(ix, from.life, version);
                    self.oblige(ix, from.life, version, size, Owes::Retracted);
                    if replaces {
                        self.note_replace(ix, from.life, version);
                    }
                    ItemResult::Ok
                }
                Some(Owes::Retracted | Owes::Retiring) => ItemResult::Ok,
                None => self.retract_unknown(from, name, version, bad),
            };
        };
        let size = entry.size;
        if !bad && let Some(held) = self.protection(ix) {
            return held;
        }
        let generation = self.nodes.life(from.life).map_or(0, |l| l.generation);
        let group = self.table.entry(ix).group();
        self.drop_claim(ix, from.life);
        self.oblige(ix, from.life, version, size, Owes::Retracted);
        if let Some(o) = self.table.entry_mut(ix).obligation_mut(from.life, version) {
            o.generation = generation;
        }
        self.count(Counter::RetractGranted, 1);
        self.count(Counter::RetractGrantedBytes, size);
        if group != NO_GROUP && !bad {
            self.evict_rest_of(group, ix);
        }
        ItemResult::Ok
    }

    fn release_size(&mut self, ix: Ix, life: LifeIx, version: Version) -> u64 {
        let size = self
            .table
            .entry(ix)
            .obligation(life, version)
            .map_or(0, |o| o.size);
        self.release(ix, life, version);
        size
    }

    /// What keeps an object from eviction now.
    fn protection(&self, ix: Ix) -> Option<ItemResult> {
        if self.in_grace() {
            return Some(ItemResult::Held(self.now.until(self.grace_end)));
        }
        let entry = self.table.entry(ix);
        if entry.attributes().is_some_and(|a| a.hard_pin) {
            return Some(ItemResult::Held(HARD_PIN_HOLD));
        }
        let until = self.leased_until(ix);
        (until > self.now).then(|| ItemResult::Leased(self.now.until(until)))
    }

    /// 'Unknown' is no grant before all has been told: a reader of the former master may count on it.
    fn retract_unknown(
        &mut self,
        from: Origin,
        name: &ObjectName,
        version: Version,
        bad: bool,
    ) -> ItemResult {
        if self.in_grace() && !bad {
            return ItemResult::Held(self.now.until(self.grace_end));
        }
        let told = self.nodes.get(from.node).is_some_and(|n| n.inventoried);
        if !told {
            return ItemResult::Held(NODE_RETRY);
        }
        let Some(ix) = self.entry_for(name) else {
            return ItemResult::Held(NODE_RETRY);
        };
        self.oblige(ix, from.life, version, 0, Owes::Retracted);
        ItemResult::Ok
    }

    /// The other members of a group lost their use: their owners evict them next.
    fn evict_rest_of(&mut self, group: u32, gone: Ix) {
        let members = self.groups.members(group).filter(|ix| *ix != gone);
        let members: Vec<Ix> = members.take(EVICT_NEXT_MAX).collect();
        for ix in members {
            let entry = self.table.entry(ix);
            let version = entry.version;
            let lives: Vec<LifeIx> = entry.claims().map(|c| c.life).collect();
            for life in lives {
                let target = self
                    .nodes
                    .of_life(life)
                    .filter(|(_, n)| n.session.is_some());
                if let (Some((node, _)), Some(name)) = (target, self.table.name(ix)) {
                    self.outbox.evict_next(node, name, version);
                }
            }
        }
    }

    fn on_absent(&mut self, life: LifeIx, name: &ObjectName, version: Version) {
        let Some(ix) = self.table.find_name(name) else {
            return;
        };
        let entry = self.table.entry(ix);
        if entry.version == version && entry.claim(life).is_some() {
            self.drop_claim(ix, life);
        }
        if !self.table.entry(ix).obligations().is_empty()
            && self.release(ix, life, version) == Some(Owes::Placed)
        {
            let all = self.table.entry(ix).obligations().iter();
            let others = all.filter(|o| o.version == version && o.owes == Owes::Placed);
            if others.count() == 0 && self.table.entry(ix).version != version {
                self.count(Counter::PutDiscarded, 1);
            }
        }
        self.recheck_entry(ix);
        self.tidy(ix);
        if let Some((node, n)) = self.nodes.of_life(life)
            && n.mark == Mark::Durable
        {
            self.try_clear_mark(node);
        }
    }
}
