//! All keys: a sharded hash table of positions over chunks of entries. Nothing grows by copying more
//! than one small shard, so that no insertion takes long.

use crate::keys::KeyArena;
use crate::object::{Entry, Ix};
use hashbrown::HashTable;
use snowskin_types::key::{Key, ObjectName, Tenant};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SHARD_BITS: u32 = 12;
const CHUNK: usize = 2048;
const NO_FREE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Table {
    seed: u64,
    shards: Box<[HashTable<Ix>]>,
    chunks: Vec<Vec<Entry>>,
    next_free: u32,
    len: usize,
    keys: KeyArena,
    tenants: Vec<Tenant>,
    tenant_of: BTreeMap<Tenant, u16>,
}

// The table hashes by the low bits and tags by the top ones; the shard takes bits between them.
fn shard_of(hash: u64) -> usize {
    ((hash >> 40) & ((1 << SHARD_BITS) - 1)) as usize
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Table {
            seed,
            shards: (0..1 << SHARD_BITS).map(|_| HashTable::new()).collect(),
            chunks: Vec::new(),
            next_free: NO_FREE,
            len: 0,
            keys: KeyArena::new(),
            tenants: Vec::new(),
            tenant_of: BTreeMap::new(),
        }
    }

    pub(crate) fn tenant_ix(&self, tenant: &Tenant) -> Option<u16> {
        self.tenant_of.get(tenant).copied()
    }

    /// The number of a tenant, given at its first object; none when there are too many.
    pub(crate) fn intern(&mut self, tenant: &Tenant) -> Option<u16> {
        if let Some(ix) = self.tenant_ix(tenant) {
            return Some(ix);
        }
        let ix = u16::try_from(self.tenants.len()).ok()?;
        self.tenants.push(tenant.clone());
        self.tenant_of.insert(tenant.clone(), ix);
        Some(ix)
    }

    pub(crate) fn hash(&self, tenant: u16, key: &[u8]) -> u64 {
        let salt = u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        xxh3_64_with_seed(key, self.seed.wrapping_add(salt))
    }

    pub(crate) fn find(&self, hash: u64, tenant: u16, key: &[u8]) -> Option<Ix> {
        let shard = &self.shards[shard_of(hash)];
        let found = shard.find(hash, |&ix| {
            let e = self.entry(ix);
            e.hash == hash
                && e.tenant == tenant
                && usize::from(e.key_len) == key.len()
                && self.keys.get(key.len(), e.key_slot) == key
        });
        found.copied()
    }

    /// The entry with this hash, its key not compared yet: see [`Self::confirm`].
    pub(crate) fn candidate(&self, hash: u64) -> Option<Ix> {
        let shard = &self.shards[shard_of(hash)];
        shard.find(hash, |&ix| self.entry(ix).hash == hash).copied()
    }

    /// Compares the key of a candidate. Another key with the same hash is looked for in full.
    pub(crate) fn confirm(&self, ix: Ix, hash: u64, tenant: u16, key: &[u8]) -> Option<Ix> {
        let e = self.entry(ix);
        let same = e.tenant == tenant
            && usize::from(e.key_len) == key.len()
            && self.keys.get(key.len(), e.key_slot) == key;
        if same {
            return Some(ix);
        }
        self.find(hash, tenant, key)
    }

    pub(crate) fn find_name(&self, name: &ObjectName) -> Option<Ix> {
        let tenant = self.tenant_ix(&name.tenant)?;
        let key = name.key.as_bytes();
        self.find(self.hash(tenant, key), tenant, key)
    }

    /// Adds a key that is not there; none when the table is full or the key is not one.
    pub(crate) fn insert(&mut self, hash: u64, tenant: u16, key: &[u8]) -> Option<Ix> {
        let key_len = u16::try_from(key.len()).ok().filter(|len| *len > 0)?;
        let ix = match self.next_free {
            NO_FREE => self.extend()?,
            ix => {
                self.next_free = self.entry(ix).key_slot;
                ix
            }
        };
        let key_slot = self.keys.insert(key);
        let mut entry = Entry::free(key_slot);
        entry.hash = hash;
        entry.key_len = key_len;
        entry.tenant = tenant;
        *self.entry_mut(ix) = entry;
        let chunks = &self.chunks;
        let shard = &mut self.shards[shard_of(hash)];
        shard.insert_unique(hash, ix, |&i| {
            chunks[i as usize / CHUNK][i as usize % CHUNK].hash
        });
        self.len += 1;
        Some(ix)
    }

    fn extend(&mut self) -> Option<Ix> {
        let ix = u32::try_from(self.slots())
            .ok()
            .filter(|ix| *ix < NO_FREE)?;
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(Entry::free(0)),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(Entry::free(0));
                self.chunks.push(chunk);
            }
        }
        Some(ix)
    }

    pub(crate) fn remove(&mut self, ix: Ix) {
        let entry = self.entry(ix);
        let (hash, len, slot) = (entry.hash, usize::from(entry.key_len), entry.key_slot);
        let shard = &mut self.shards[shard_of(hash)];
        if let Ok(found) = shard.find_entry(hash, |&i| i == ix) {
            found.remove();
            self.keys.remove(len, slot);
            let next = self.next_free;
            *self.entry_mut(ix) = Entry::free(next);
            self.next_free = ix;
            self.len -= 1;
        }
    }

    pub(crate) fn entry(&self, ix: Ix) -> &Entry {
        &self.chunks[ix as usize / CHUNK][ix as usize % CHUNK]
    }

    pub(crate) fn entry_mut(&mut self, ix: Ix) -> &mut Entry {
        &mut self.chunks[ix as usize / CHUNK][ix as usize % CHUNK]
    }

    pub(crate) fn key(&self, ix: Ix) -> &[u8] {
        let e = self.entry(ix);
        self.keys.get(usize::from(e.key_len), e.key_slot)
    }

    pub(crate) fn tenant(&self, ix: Ix) -> &Tenant {
        &self.tenants[usize::from(self.entry(ix).tenant)]
    }

    pub(crate) fn name(&self, ix: Ix) -> Option<ObjectName> {
        // Stored keys have passed the check once; none cannot happen.
        let key = Key::new(self.key(ix)).ok()?;
        Some(ObjectName::new(self.tenant(ix).clone(), key))
    }

    /// Positions in use lie below this.
    pub(crate) fn slots(&self) -> usize {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() - 1) * CHUNK + last.len(),
            None => 0,
        }
    }

    pub(crate) fn is_live(&self, ix: Ix) -> bool {
        (ix as usize) < self.slots() && self.entry(ix).key_len > 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_per_tenant_and_positions_are_used_again() {
        let mut table = Table::new(7);
        let a = table.intern(&Tenant::new("a").unwrap()).unwrap();
        let b = table.intern(&Tenant::new("b").unwrap()).unwrap();
        for n in 0..5000u32 {
            let key = n.to_le_bytes();
            let hash = table.hash(a, &key);
            assert_eq!(table.insert(hash, a, &key), Some(n));
        }
        let key = 77u32.to_le_bytes();
        assert_eq!(table.find(table.hash(a, &key), a, &key), Some(77));
        assert_eq!(table.find(table.hash(b, &key), b, &key), None);
        table.remove(77);
        assert_eq!(table.find(table.hash(a, &key), a, &key), None);
        assert!(!table.is_live(77) && table.len() == 4999);
        let hash = table.hash(b, b"new");
        assert_eq!(table.insert(hash, b, b"new"), Some(77));
        assert_eq!(table.key(77), b"new");
    }
}
