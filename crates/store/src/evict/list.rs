//! Doubly linked lists threaded through one slab, so that moving an element costs no allocation.

/// Index of a node, or none.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    before: u32,
    after: u32,
    value: T,
}

/// Nodes of several lists; a node is in one list at a time.
#[derive(Debug)]
pub(super) struct Slab<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            nodes: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Copy> Slab<T> {
    /// Stores a value outside of all lists; [`NONE`] when 2^32 - 1 nodes are taken.
    pub(super) fn put(&mut self, value: T) -> u32 {
        let node = Node {
            before: NONE,
            after: NONE,
            value,
        };
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        let at = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        if at != NONE {
            self.nodes.push(node);
        }
        at
    }

    /// Gives a node back that is in no list.
    pub(super) fn take(&mut self, at: u32) -> T {
        self.free.push(at);
        self.nodes[at as usize].value
    }

    pub(super) fn get(&self, at: u32) -> &T {
        &self.nodes[at as usize].value
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut T {
        &mut self.nodes[at as usize].value
    }
}

/// One list: new at the head, old at the tail.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> Self {
        List {
            head: NONE,
            tail: NONE,
        }
    }
}

impl List {
    pub(super) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    pub(super) fn push_head<T>(&mut self, slab: &mut Slab<T>, at: u32) {
        slab.nodes[at as usize].before = NONE;
        slab.nodes[at as usize].after = self.head;
        match self.head {
            NONE => self.tail = at,
            head => slab.nodes[head as usize].before = at,
        }
        self.head = at;
    }

    pub(super) fn push_tail<T>(&mut self, slab: &mut Slab<T>, at: u32) {
        slab.nodes[at as usize].after = NONE;
        slab.nodes[at as usize].before = self.tail;
        match self.tail {
            NONE => self.head = at,
            tail => slab.nodes[tail as usize].after = at,
        }
        self.tail = at;
    }

    /// Takes a node out of this list, in which it must be.
    pub(super) fn unlink<T>(&mut self, slab: &mut Slab<T>, at: u32) {
        let (before, after) = {
            let node = &slab.nodes[at as usize];
            (node.before, node.after)
        };
        match before {
            NONE => self.head = after,
            before => slab.nodes[before as usize].after = after,
        }
        match after {
            NONE => self.tail = before,
            after => slab.nodes[after as usize].before = before,
        }
    }
}
