//! Which versions are where, and which must not come back.

use crate::event::RemoveId;
use crate::format::BucketId;
use crate::format::record::{Descriptor, Position};
use crate::format::tombstone::Incarnation;
use snowskin_types::key::ObjectName;
use snowskin_types::version::Version;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Hashes with a seed that nobody outside knows, so that keys cannot be aimed at collisions, and
/// that stays the same in a run, so that it replays.
#[derive(Debug, Clone)]
struct Seeded(u64);

struct Xxh(Xxh3);

impl Hasher for Xxh {
    fn finish(&self) -> u64 {
        self.0.digest()
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl BuildHasher for Seeded {
    type Hasher = Xxh;
    fn build_hasher(&self) -> Xxh {
        Xxh(Xxh3::with_seed(self.0))
    }
}

/// The record from which a version is read.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) at: Position,
    pub(crate) object: Arc<Descriptor>,
    /// Found damaged; waits to be removed.
    pub(crate) bad: bool,
}

/// What keeps a version from coming back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tomb {
    /// Nothing: it is not retired.
    #[default]
    None,
    /// It is retired; its tombstone is not durable yet (or not in the bucket that stays).
    Queued,
    /// Its tombstone is durable in this bucket.
    Durable(BucketId),
}

/// One version.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) version: Version,
    pub(crate) live: Option<Live>,
    /// Every record that is or may be on the disk, by its bucket, the live one included.
    pub(crate) copies: Vec<BucketId>,
    pub(crate) tomb: Tomb,
    /// Who waits for the tombstone.
    pub(crate) removes: Vec<RemoveId>,
    /// The bucket under eviction waits for the tombstone.
    pub(crate) victim_waits: bool,
    /// Recovery found a newer version beside it.
    pub(crate) superseded: bool,
    /// An append waits for its bucket or is being written.
    pub(crate) appending: bool,
}

impl Entry {
    pub(crate) fn forget_copy(&mut self, bucket: BucketId) {
        if let Some(i) = self.copies.iter().position(|b| *b == bucket) {
            self.copies.swap_remove(i);
        }
        if self.live.as_ref().is_some_and(|l| l.at.bucket == bucket)
            && !self.copies.contains(&bucket)
        {
            self.live = None;
        }
    }

    pub(crate) fn is_live_in(&self, bucket: BucketId) -> bool {
        self.live.as_ref().is_some_and(|l| l.at.bucket == bucket)
    }

    pub(crate) fn has_copy_outside(&self, bucket: BucketId) -> bool {
        self.copies.iter().any(|b| *b != bucket)
    }
}

/// All versions of all names. Never iterated where the order would show.
#[derive(Debug)]
pub(crate) struct Table {
    names: HashMap<ObjectName, Vec<Entry>, Seeded>,
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        Table {
            names: HashMap::with_hasher(Seeded(seed)),
        }
    }

    pub(crate) fn reserve(&mut self, names: usize) {
        self.names.reserve(names);
    }

    pub(crate) fn get(&self, i: &Incarnation) -> Option<&Entry> {
        let entries = self.names.get(&i.name)?;
        entries.iter().find(|e| e.version == i.version)
    }

    pub(crate) fn get_mut(&mut self, i: &Incarnation) -> Option<&mut Entry> {
        let entries = self.names.get_mut(&i.name)?;
        entries.iter_mut().find(|e| e.version == i.version)
    }

    /// The version's entry, made when there is none.
    pub(crate) fn entry(&mut self, name: &ObjectName, version: Version) -> &mut Entry {
        if !self.names.contains_key(name) {
            self.names.insert(name.clone(), Vec::with_capacity(1));
        }
        let entries = self.names.entry(name.clone()).or_default();
        let place = entries.iter().position(|e| e.version == version);
        let place = place.unwrap_or_else(|| {
            entries.push(Entry {
                version,
                ..Entry::default()
            });
            entries.len() - 1
        });
        &mut entries[place]
    }

    /// All versions of a name.
    pub(crate) fn versions(&mut self, name: &ObjectName) -> &mut [Entry] {
        self.names
            .get_mut(name)
            .map(Vec::as_mut_slice)
            .unwrap_or_default()
    }

    pub(crate) fn forget(&mut self, i: &Incarnation) {
        let Some(entries) = self.names.get_mut(&i.name) else {
            return;
        };
        entries.retain(|e| e.version != i.version);
        if entries.is_empty() {
            self.names.remove(&i.name);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.values().map(Vec::len).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectName, &Entry)> {
        self.names
            .iter()
            .flat_map(|(name, entries)| entries.iter().map(move |e| (name, e)))
    }
}

/// Name and version of an object.
pub(crate) fn incarnation(object: &Descriptor) -> Incarnation {
    Incarnation {
        name: object.name.clone(),
        version: object.version,
    }
}
