//! Control links between nodes and the master. Each side notices the end of a link by itself, at a
//! time of its own; until then it may still get what was sent before.

use std::collections::BTreeMap;

/// One connection of a node to the master.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// The node.
    pub node: usize,
    /// Its process life.
    pub node_life: u32,
    /// The master's process life.
    pub master_life: u32,
    /// The node has not noticed an end.
    pub open_at_node: bool,
    /// The master has not noticed an end.
    pub open_at_master: bool,
}

/// All links that at least one side believes in.
#[derive(Debug, Default)]
pub struct Links {
    table: BTreeMap<u64, Link>,
    made: u64,
}

impl Links {
    /// Opens a link.
    pub fn open(&mut self, node: usize, node_life: u32, master_life: u32) -> u64 {
        self.made += 1;
        self.table.insert(
            self.made,
            Link {
                node,
                node_life,
                master_life,
                open_at_node: true,
                open_at_master: true,
            },
        );
        self.made
    }

    /// A link that at least one side believes in.
    pub fn get(&self, link: u64) -> Option<Link> {
        self.table.get(&link).copied()
    }

    /// The node has noticed the end; true if it had not before.
    pub fn close_at_node(&mut self, link: u64) -> bool {
        let Some(found) = self.table.get_mut(&link) else {
            return false;
        };
        let was = std::mem::replace(&mut found.open_at_node, false);
        self.prune(link);
        was
    }

    /// The master has noticed the end; true if it had not before.
    pub fn close_at_master(&mut self, link: u64) -> bool {
        let Some(found) = self.table.get_mut(&link) else {
            return false;
        };
        let was = std::mem::replace(&mut found.open_at_master, false);
        self.prune(link);
        was
    }

    fn prune(&mut self, link: u64) {
        if self
            .table
            .get(&link)
            .is_some_and(|l| !l.open_at_node && !l.open_at_master)
        {
            self.table.remove(&link);
        }
    }

    /// All links, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Link)> + '_ {
        self.table.iter().map(|(id, link)| (*id, *link))
    }
}
