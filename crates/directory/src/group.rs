//! Objects that belong together: a lease on one covers all, and they are evicted one after the other.

use crate::object::{Ix, NO_GROUP};
use snowskin_types::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
struct Group {
    name: (u16, Arc<str>),
    members: BTreeSet<Ix>,
    lease: Now,
}

/// All groups that have members.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_name: BTreeMap<(u16, Arc<str>), u32>,
    groups: Vec<Option<Group>>,
    free: Vec<u32>,
}

impl Groups {
    /// Joins an entry to the group of this name and returns the group's number.
    pub(crate) fn join(&mut self, tenant: u16, name: &Arc<str>, ix: Ix) -> u32 {
        let full = (tenant, name.clone());
        let id = match self.by_name.get(&full) {
            Some(id) => *id,
            None => {
                let group = Group {
                    name: full.clone(),
                    members: BTreeSet::new(),
                    lease: Now(0),
                };
                let id = self.free.pop().unwrap_or(self.groups.len() as u32);
                if id as usize == self.groups.len() {
                    self.groups.push(Some(group));
                } else {
                    self.groups[id as usize] = Some(group);
                }
                self.by_name.insert(full, id);
                id
            }
        };
        if let Some(group) = self.get_mut(id) {
            group.members.insert(ix);
        }
        id
    }

    pub(crate) fn leave(&mut self, id: u32, ix: Ix) {
        let Some(group) = self.get_mut(id) else {
            return;
        };
        group.members.remove(&ix);
        if group.members.is_empty() {
            let name = group.name.clone();
            self.by_name.remove(&name);
            self.groups[id as usize] = None;
            self.free.push(id);
        }
    }

    pub(crate) fn prolong(&mut self, id: u32, until: Now) {
        if let Some(group) = self.get_mut(id) {
            group.lease = group.lease.max(until);
        }
    }

    pub(crate) fn lease(&self, id: u32) -> Now {
        if id == NO_GROUP {
            return Now(0);
        }
        let group = self.groups.get(id as usize);
        group.and_then(Option::as_ref).map_or(Now(0), |g| g.lease)
    }

    pub(crate) fn members(&self, id: u32) -> impl Iterator<Item = Ix> + '_ {
        let group = self.groups.get(id as usize).and_then(Option::as_ref);
        group.into_iter().flat_map(|g| g.members.iter().copied())
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut Group> {
        self.groups.get_mut(id as usize).and_then(Option::as_mut)
    }
}
