//! What will happen, ordered by simulated time and, within one moment, by the order of posting.

use crate::clock::Micros;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A deterministic event queue.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Reverse<(Micros, u64, u32)>>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    posted: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            posted: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Posts something for a moment.
    pub fn post(&mut self, at: Micros, what: T) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(what);
                slot
            }
            None => {
                self.slots.push(Some(what));
                (self.slots.len() - 1) as u32
            }
        };
        self.posted += 1;
        self.heap.push(Reverse((at, self.posted, slot)));
    }

    /// The moment of the next thing.
    pub fn next_at(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next thing.
    pub fn pop(&mut self) -> Option<(Micros, T)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        let what = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((at, what))
    }

    /// How many things wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
