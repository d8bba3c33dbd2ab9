//! Least recently used first.

use super::list::{List, NONE, Slab};
use super::{Entry, Policy};
use crate::map::NumberMap;

/// One list in order of last use, and before it those that are to go first.
#[derive(Debug, Default)]
pub struct Lru {
    at: NumberMap,
    slab: Slab<Held>,
    order: List,
    /// Victims that came back, in the order of their return, and objects that were named as next.
    next: List,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    entry: Entry,
    is_next: bool,
}

impl Lru {
    fn add(&mut self, entry: Entry, is_next: bool) {
        let at = self.slab.put(Held { entry, is_next });
        if at == NONE {
            return;
        }
        self.at.insert(entry.id, at);
        self.bytes += entry.size;
        let list = if is_next {
            &mut self.next
        } else {
            &mut self.order
        };
        list.push_head(&mut self.slab, at);
    }

    fn unlink(&mut self, at: u32) {
        if self.slab.get(at).is_next {
            self.next.unlink(&mut self.slab, at);
        } else {
            self.order.unlink(&mut self.slab, at);
        }
    }
}

impl Policy for Lru {
    fn insert(&mut self, entry: Entry) {
        if self.at.get(entry.id).is_some() {
            self.touch(entry.id);
        } else {
            self.add(entry, false);
        }
    }

    fn touch(&mut self, id: u64) {
        if let Some(at) = self.at.get(id) {
            self.unlink(at);
            self.slab.get_mut(at).is_next = false;
            self.order.push_head(&mut self.slab, at);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(at) = self.at.remove(id) {
            self.unlink(at);
            self.bytes -= self.slab.take(at).entry.size;
        }
    }

    fn victim(&mut self) -> Option<u64> {
        let at = self.next.tail().or_else(|| self.order.tail())?;
        let id = self.slab.get(at).entry.id;
        self.remove(id);
        Some(id)
    }

    fn restore(&mut self, entry: Entry) {
        if self.at.get(entry.id).is_some() {
            self.demote(entry.id);
        } else {
            self.add(entry, true);
        }
    }

    fn demote(&mut self, id: u64) {
        if let Some(at) = self.at.get(id) {
            self.unlink(at);
            self.slab.get_mut(at).is_next = true;
            self.next.push_tail(&mut self.slab, at);
        }
    }

    fn len(&self) -> usize {
        self.at.len()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> Entry {
        Entry {
            id,
            print: id,
            size: 10 + id,
        }
    }

    #[test]
    fn the_one_unused_for_longest_goes_first() {
        let mut lru = Lru::default();
        (0..4).for_each(|id| lru.insert(entry(id)));
        lru.touch(0);
        lru.insert(entry(1));
        assert_eq!((lru.len(), lru.bytes()), (4, 46));
        let order: Vec<_> = std::iter::from_fn(|| lru.victim()).collect();
        assert_eq!(order, [2, 3, 0, 1]);
        assert_eq!((lru.len(), lru.bytes()), (0, 0));
    }

    #[test]
    fn a_victim_that_is_restored_is_offered_next_unless_touched() {
        let mut lru = Lru::default();
        (0..3).for_each(|id| lru.insert(entry(id)));
        assert_eq!(lru.victim(), Some(0));
        lru.restore(entry(0));
        assert_eq!(lru.victim(), Some(0));
        lru.restore(entry(0));
        lru.touch(0);
        assert_eq!(lru.victim(), Some(1));
    }

    #[test]
    fn victims_that_are_restored_keep_their_order() {
        let mut lru = Lru::default();
        (0..5).for_each(|id| lru.insert(entry(id)));
        let refused: Vec<_> = (0..3).filter_map(|_| lru.victim()).collect();
        refused.iter().for_each(|id| lru.restore(entry(*id)));
        let order: Vec<_> = std::iter::from_fn(|| lru.victim()).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_demoted_object_goes_first_and_a_removed_one_never() {
        let mut lru = Lru::default();
        (0..3).for_each(|id| lru.insert(entry(id)));
        lru.demote(2);
        lru.remove(0);
        lru.touch(7);
        let order: Vec<_> = std::iter::from_fn(|| lru.victim()).collect();
        assert_eq!(order, [2, 1]);
    }
}
