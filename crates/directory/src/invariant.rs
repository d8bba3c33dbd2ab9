//! What must hold after every event.

use crate::directory::Directory;
use crate::gauges::Totals;
use crate::object::{Ix, NO_GROUP, Owes};
use std::collections::BTreeMap;

/// Larger tables are checked by whoever asks, not after every event.
#[cfg(debug_assertions)]
const CHECKED_ENTRIES_MAX: usize = 256;

impl Directory {
    #[cfg(debug_assertions)]
    pub(crate) fn check_small(&self) {
        if self.table.slots() <= CHECKED_ENTRIES_MAX {
            let checked = self.check();
            debug_assert!(checked.is_ok(), "{checked:?}");
        }
    }

    /// Checks all invariants; the error names the first that does not hold. Takes time linear in the
    /// number of keys.
    pub fn check(&self) -> Result<(), String> {
        let mut totals = Totals::default();
        // For each life: replicas, bytes, obligations, retiring.
        let mut lives: BTreeMap<u16, [u64; 4]> = BTreeMap::new();
        let mut waits = 0;
        for ix in 0..self.table.slots() as Ix {
            if self.table.is_live(ix) {
                self.check_entry(ix, &mut totals, &mut lives)
                    .map_err(|why| format!("entry {ix}: {why}"))?;
                waits += self.table.entry(ix).waits().len();
            }
        }
        if totals != self.totals {
            return Err(format!("totals are {:?}, found {totals:?}", self.totals));
        }
        if waits + self.waits.without_entry() != self.waits.len() {
            return Err(format!("{} waits, {waits} named", self.waits.len()));
        }
        for (at, life) in self.nodes.lives().iter().enumerate() {
            let found = lives.get(&(at as u16)).copied().unwrap_or_default();
            let kept = [life.replicas, life.bytes, life.obligations, life.retiring];
            if found != kept {
                return Err(format!("life {at} has {kept:?}, found {found:?}"));
            }
        }
        self.check_nodes()
    }

    fn check_entry(
        &self,
        ix: Ix,
        totals: &mut Totals,
        lives: &mut BTreeMap<u16, [u64; 4]>,
    ) -> Result<(), String> {
        let entry = self.table.entry(ix);
        if entry.has_claims() && entry.version.is_none() {
            return Err("claims without a version".into());
        }
        if entry.has_claims() && entry.version <= entry.floor() {
            return Err("the current version is removed".into());
        }
        let key = self.table.key(ix);
        if self.table.find(entry.hash, entry.tenant, key) != Some(ix) {
            return Err("the key is not found at its place".into());
        }
        if entry.is_bare() && entry.version.is_none() && entry.floor().is_none() {
            return Err("nothing is in it".into());
        }
        let mut held = Vec::new();
        for claim in entry.claims() {
            let life = lives.entry(claim.life).or_default();
            life[0] += 1;
            life[1] += entry.size;
            held.push((claim.life, entry.version));
            if claim.hidden() != self.hidden.contains_key(&(ix, claim.life)) {
                return Err("a hidden claim and its question differ".into());
            }
        }
        let mut placed = Vec::new();
        for o in entry.obligations() {
            let life = lives.entry(o.life).or_default();
            life[2] += 1;
            life[3] += u64::from(o.owes == Owes::Retiring);
            held.push((o.life, o.version));
            totals.obligations += 1;
            if o.owes == Owes::Placed {
                placed.push(o.version);
            }
            if o.owes == Owes::Placed && o.version <= entry.floor() {
                return Err("a placement of a removed version".into());
            }
        }
        placed.sort_unstable();
        placed.dedup();
        totals.unfinished += placed.len() as u64;
        held.sort_unstable();
        if held.windows(2).any(|w| w[0] == w[1]) {
            return Err("a life owns one version twice".into());
        }
        if entry.has_claims() {
            totals.objects += 1;
            totals.bytes += entry.size;
            let attributes = entry.attributes();
            totals.hard_pins += u64::from(attributes.is_some_and(|a| a.hard_pin));
            totals.soft_pins += u64::from(attributes.is_some_and(|a| a.soft_pin.is_some()));
        } else {
            totals.unclaimed += 1;
        }
        let group = entry.group();
        if group != NO_GROUP && !self.groups.members(group).any(|m| m == ix) {
            return Err("not a member of its group".into());
        }
        for id in entry.waits() {
            if self.waits.get(*id).is_none_or(|w| w.ix != Some(ix)) {
                return Err("a wait that is not there".into());
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), String> {
        let incomplete = self.nodes.iter().filter(|(_, n)| !n.complete).count();
        if incomplete != self.incomplete {
            return Err(format!(
                "{} nodes incomplete, found {incomplete}",
                self.incomplete
            ));
        }
        for (ix, node) in self.nodes.iter() {
            if node.session.is_some() && node.link.and_then(|l| self.nodes.by_link(l)) != Some(ix) {
                return Err(format!("node {ix} has a session without a link"));
            }
            if self.nodes.is_dead(node.life) {
                return Err(format!("node {ix} lives a dead life"));
            }
        }
        Ok(())
    }
}
