//! S3-FIFO: a small first queue filters what is used once, a main queue keeps what is used again,
//! and a queue of ghosts remembers what the filter threw out.

use super::list::{List, NONE, Slab};
use super::{Entry, Policy};
use crate::map::NumberMap;

/// Share of the capacity that the small queue may take before it gives victims.
const SMALL_SHARE: u64 = 10;
/// Uses beyond this are not counted.
const USES_MAX: u8 = 3;
/// Most ghosts, whatever their sizes.
const GHOSTS_MAX: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
    /// Victims that came back, in the order of their return, and objects that were named as next.
    Next,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    entry: Entry,
    uses: u8,
    queue: Queue,
}

/// The three queues.
#[derive(Debug)]
pub struct S3Fifo {
    at: NumberMap,
    slab: Slab<Held>,
    small: List,
    main: List,
    next: List,
    small_bytes: u64,
    bytes: u64,
    small_target: u64,
    ghosts: Ghosts,
}

impl S3Fifo {
    /// Makes one for a cache of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        S3Fifo {
            at: NumberMap::default(),
            slab: Slab::default(),
            small: List::default(),
            main: List::default(),
            next: List::default(),
            small_bytes: 0,
            bytes: 0,
            small_target: (capacity / SMALL_SHARE).max(1),
            ghosts: Ghosts::new(capacity),
        }
    }

    fn push(&mut self, at: u32, queue: Queue) {
        let held = self.slab.get_mut(at);
        held.queue = queue;
        match queue {
            Queue::Small => {
                self.small_bytes += held.entry.size;
                self.small.push_head(&mut self.slab, at);
            }
            Queue::Main => self.main.push_head(&mut self.slab, at),
            Queue::Next => self.next.push_head(&mut self.slab, at),
        }
    }

    fn unlink(&mut self, at: u32) {
        let held = *self.slab.get(at);
        match held.queue {
            Queue::Small => {
                self.small_bytes -= held.entry.size;
                self.small.unlink(&mut self.slab, at);
            }
            Queue::Main => self.main.unlink(&mut self.slab, at),
            Queue::Next => self.next.unlink(&mut self.slab, at),
        }
    }

    fn add(&mut self, entry: Entry, queue: Queue) {
        let at = self.slab.put(Held {
            entry,
            uses: 0,
            queue,
        });
        if at == NONE {
            return;
        }
        self.at.insert(entry.id, at);
        self.bytes += entry.size;
        self.push(at, queue);
    }

    fn drop_out(&mut self, at: u32) -> Entry {
        self.unlink(at);
        let entry = self.slab.take(at).entry;
        self.at.remove(entry.id);
        self.bytes -= entry.size;
        entry
    }
}

impl Policy for S3Fifo {
    fn insert(&mut self, entry: Entry) {
        if self.at.get(entry.id).is_some() {
            self.touch(entry.id);
        } else if self.ghosts.remove(entry.print) {
            self.add(entry, Queue::Main);
        } else {
            self.add(entry, Queue::Small);
        }
    }

    fn touch(&mut self, id: u64) {
        let Some(at) = self.at.get(id) else { return };
        let held = self.slab.get_mut(at);
        held.uses = (held.uses + 1).min(USES_MAX);
        if held.queue == Queue::Next {
            self.unlink(at);
            self.push(at, Queue::Main);
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(at) = self.at.get(id) {
            self.drop_out(at);
        }
    }

    fn victim(&mut self) -> Option<u64> {
        if let Some(at) = self.next.tail() {
            return Some(self.drop_out(at).id);
        }
        // Each turn returns, moves an object from small to main, or uses up one of its counted uses.
        loop {
            let small = self.small.tail();
            let main = self.main.tail();
            let (at, queue) = match (small, main) {
                (Some(at), None) => (at, Queue::Small),
                (Some(at), Some(_)) if self.small_bytes >= self.small_target => (at, Queue::Small),
                (_, Some(at)) => (at, Queue::Main),
                (None, None) => return None,
            };
            let uses = self.slab.get(at).uses;
            match (queue, uses) {
                (Queue::Small, 0) => {
                    let entry = self.drop_out(at);
                    self.ghosts.add(entry);
                    return Some(entry.id);
                }
                (_, 0) => return Some(self.drop_out(at).id),
                (from, uses) => {
                    self.unlink(at);
                    let kept = if from == Queue::Main { uses - 1 } else { 0 };
                    self.slab.get_mut(at).uses = kept;
                    self.push(at, Queue::Main);
                }
            }
        }
    }

    fn restore(&mut self, entry: Entry) {
        if self.at.get(entry.id).is_some() {
            return self.demote(entry.id);
        }
        self.ghosts.remove(entry.print);
        self.add(entry, Queue::Next);
    }

    fn demote(&mut self, id: u64) {
        if let Some(at) = self.at.get(id) {
            self.unlink(at);
            let held = self.slab.get_mut(at);
            held.uses = 0;
            held.queue = Queue::Next;
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

/// What the small queue threw out lately: as many bytes as the cache holds.
#[derive(Debug)]
struct Ghosts {
    at: NumberMap,
    slab: Slab<(u64, u64)>,
    order: List,
    bytes: u64,
    bytes_max: u64,
}

impl Ghosts {
    fn new(bytes_max: u64) -> Self {
        Ghosts {
            at: NumberMap::default(),
            slab: Slab::default(),
            order: List::default(),
            bytes: 0,
            bytes_max,
        }
    }

    fn add(&mut self, entry: Entry) {
        self.remove(entry.print);
        let at = self.slab.put((entry.print, entry.size));
        if at == NONE {
            return;
        }
        self.at.insert(entry.print, at);
        self.order.push_head(&mut self.slab, at);
        self.bytes += entry.size;
        while self.bytes > self.bytes_max || self.at.len() > GHOSTS_MAX {
            let Some(oldest) = self.order.tail() else {
                break;
            };
            let print = self.slab.get(oldest).0;
            self.remove(print);
        }
    }

    fn remove(&mut self, print: u64) -> bool {
        let Some(at) = self.at.remove(print) else {
            return false;
        };
        self.order.unlink(&mut self.slab, at);
        self.bytes -= self.slab.take(at).1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64) -> Entry {
        Entry {
            id,
            print: id,
            size: 1,
        }
    }

    #[test]
    fn what_is_used_once_goes_before_what_is_used_again() {
        let mut s3 = S3Fifo::new(10);
        (0..10).for_each(|id| s3.insert(entry(id)));
        s3.touch(0);
        s3.touch(3);
        let order: Vec<_> = std::iter::from_fn(|| s3.victim()).collect();
        assert_eq!(order[..8], [1, 2, 4, 5, 6, 7, 8, 9]);
        assert_eq!(order.len(), 10);
        assert_eq!((s3.len(), s3.bytes()), (0, 0));
    }

    #[test]
    fn a_ghost_that_returns_skips_the_filter() {
        let mut s3 = S3Fifo::new(10);
        (0..10).for_each(|id| s3.insert(entry(id)));
        assert_eq!(s3.victim(), Some(0));
        // It returns under another id and is known by its print.
        s3.insert(Entry {
            id: 100,
            ..entry(0)
        });
        let order: Vec<_> = std::iter::from_fn(|| s3.victim()).collect();
        assert_eq!(order.last(), Some(&100), "{order:?}");
    }

    #[test]
    fn ghosts_are_bounded_by_the_bytes_of_the_cache() {
        let mut s3 = S3Fifo::new(10);
        for id in 0..1000 {
            s3.insert(entry(id));
            if s3.len() > 10 {
                s3.victim();
            }
        }
        assert!(s3.ghosts.bytes <= 10 && s3.ghosts.at.len() <= 10);
    }

    #[test]
    fn a_victim_that_is_restored_is_offered_next_unless_touched() {
        let mut s3 = S3Fifo::new(10);
        (0..10).for_each(|id| s3.insert(entry(id)));
        s3.demote(5);
        assert_eq!(s3.victim(), Some(5));
        s3.restore(entry(5));
        assert_eq!(s3.victim(), Some(5));
        s3.restore(entry(5));
        s3.touch(5);
        assert_eq!(s3.victim(), Some(0));
        s3.remove(1);
        assert_eq!(s3.victim(), Some(2));
    }
}
