//! Key bytes in size classes: no allocation, header or doubling copy per key.

/// Keys up to this long live in class pages, longer ones in a box of their own.
const CLASS_MAX: usize = 512;
const STEP: usize = 16;
const PAGE_SLOTS: usize = 256;

#[derive(Debug, Default)]
struct Class {
    pages: Vec<Box<[u8]>>,
    used: u32,
    free: Vec<u32>,
}

/// An arena of keys. A key is found by its length and its slot.
#[derive(Debug)]
pub(crate) struct KeyArena {
    classes: Vec<Class>,
    large: Vec<Box<[u8]>>,
    large_free: Vec<u32>,
}

fn class_of(len: usize) -> usize {
    len.div_ceil(STEP) - 1
}

impl KeyArena {
    pub(crate) fn new() -> Self {
        let mut classes = Vec::new();
        classes.resize_with(CLASS_MAX / STEP, Class::default);
        KeyArena {
            classes,
            large: Vec::new(),
            large_free: Vec::new(),
        }
    }

    /// Stores a non-empty key and returns its slot.
    pub(crate) fn insert(&mut self, key: &[u8]) -> u32 {
        if key.len() > CLASS_MAX {
            return self.insert_large(key);
        }
        let class = class_of(key.len());
        let width = (class + 1) * STEP;
        let class = &mut self.classes[class];
        let slot = class.free.pop().unwrap_or_else(|| {
            if class.used as usize == class.pages.len() * PAGE_SLOTS {
                class.pages.push(vec![0; width * PAGE_SLOTS].into());
            }
            class.used += 1;
            class.used - 1
        });
        let page = &mut class.pages[slot as usize / PAGE_SLOTS];
        let at = slot as usize % PAGE_SLOTS * width;
        page[at..at + key.len()].copy_from_slice(key);
        slot
    }

    fn insert_large(&mut self, key: &[u8]) -> u32 {
        if let Some(slot) = self.large_free.pop() {
            self.large[slot as usize] = key.into();
            return slot;
        }
        self.large.push(key.into());
        (self.large.len() - 1) as u32
    }

    pub(crate) fn get(&self, len: usize, slot: u32) -> &[u8] {
        if len > CLASS_MAX {
            return &self.large[slot as usize];
        }
        let class = class_of(len);
        let width = (class + 1) * STEP;
        let page = &self.classes[class].pages[slot as usize / PAGE_SLOTS];
        let at = slot as usize % PAGE_SLOTS * width;
        &page[at..at + len]
    }

    pub(crate) fn remove(&mut self, len: usize, slot: u32) {
        if len > CLASS_MAX {
            self.large[slot as usize] = Box::default();
            self.large_free.push(slot);
        } else {
            self.classes[class_of(len)].free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_come_back_and_slots_are_used_again() {
        let mut arena = KeyArena::new();
        let keys: Vec<Vec<u8>> = (1..1200usize).map(|n| vec![(n % 251) as u8; n]).collect();
        let slots: Vec<u32> = keys.iter().map(|k| arena.insert(k)).collect();
        for (key, slot) in keys.iter().zip(&slots) {
            assert_eq!(arena.get(key.len(), *slot), &key[..]);
        }
        arena.remove(100, slots[99]);
        arena.remove(1000, slots[999]);
        assert_eq!(arena.insert(&[9; 100]), slots[99]);
        assert_eq!(arena.insert(&[9; 1000]), slots[999]);
        assert_eq!(arena.get(100, slots[99]), &[9; 100]);
    }
}
