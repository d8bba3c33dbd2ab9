//! Taking up what recovery found.

use super::Log;
use super::bucket::{Bucket, Item, Phase};
use super::table::{Live, Tomb, incarnation};
use crate::format::record::Position;
use crate::format::tombstone::Incarnation;
use crate::recover::{FoundBucket, Recovered};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Log {
    pub(super) fn take_up(&mut self, mut recovered: Recovered) {
        recovered.buckets.sort_by_key(|b| b.bucket);
        self.opaque = recovered.buckets.iter().filter(|b| b.opaque).count();
        let objects = recovered.buckets.iter().map(|b| b.objects.len()).sum();
        self.table.reserve(objects);
        for found in &recovered.buckets {
            self.enter_copies(found);
        }
        for found in &recovered.buckets {
            self.enter_tombstones(found);
        }
        let outdated = self.outdated(&recovered.buckets);
        for found in recovered.buckets {
            self.enter_bucket(found);
        }
        for id in outdated {
            let entry = self.table.entry(&id.name, id.version);
            entry.live = None;
            entry.superseded = true;
            self.superseded += 1;
            self.queue_tombstone(id);
        }
    }

    /// Buckets come in the order of their numbers, so of several records of a version the latest is read.
    fn enter_copies(&mut self, found: &FoundBucket) {
        for (offset, object) in &found.objects {
            let entry = self.table.entry(&object.name, object.version);
            entry.copies.push(found.bucket);
            entry.live = Some(Live {
                at: Position {
                    bucket: found.bucket,
                    offset: *offset,
                },
                object: Arc::clone(object),
                bad: false,
            });
        }
        for id in &found.voids {
            let entry = self.table.entry(&id.name, id.version);
            entry.copies.push(found.bucket);
        }
    }

    fn enter_tombstones(&mut self, found: &FoundBucket) {
        for id in &found.tombstones {
            if self.opaque > 0 {
                self.table.entry(&id.name, id.version);
            }
            // A version of which nothing can be left needs none.
            let Some(entry) = self.table.get_mut(id) else {
                continue;
            };
            entry.live = None;
            if found.sealed {
                // Queued ones stay so: of two tombstones the one under way outlives this.
                if entry.tomb != Tomb::Queued {
                    entry.tomb = Tomb::Durable(found.bucket);
                }
            } else if entry.tomb == Tomb::None {
                // It was perhaps never synced.
                self.queue_tombstone(id.clone());
            }
        }
    }

    /// The versions beside which a newer one of the same name can be read.
    fn outdated(&mut self, buckets: &[FoundBucket]) -> BTreeSet<Incarnation> {
        let mut outdated = BTreeSet::new();
        for (_, object) in buckets.iter().flat_map(|b| &b.objects) {
            let versions = self.table.versions(&object.name);
            if versions.len() < 2 {
                continue;
            }
            let live = versions.iter().filter(|e| e.live.is_some());
            let newest = live.map(|e| e.version).max();
            let this = versions.iter().find(|e| e.version == object.version);
            if Some(object.version) < newest && this.is_some_and(|e| e.live.is_some()) {
                outdated.insert(incarnation(object));
            }
        }
        outdated
    }

    fn enter_bucket(&mut self, found: FoundBucket) {
        let mut bucket = Bucket::new(found.bucket, found.bytes);
        bucket.phase = match (found.sealed, found.opaque) {
            (true, _) => Phase::Sealed,
            (false, true) => Phase::Unsealed,
            (false, false) => Phase::Closing,
        };
        bucket.next = found.end;
        bucket.damaged = found.damaged;
        bucket.opaque = found.opaque;
        bucket.items = found
            .objects
            .into_iter()
            .map(|(offset, object)| Item {
                offset,
                object,
                written: true,
            })
            .collect();
        bucket.items.sort_by_key(|item| item.offset);
        bucket.voids = found.voids;
        let known = |id: &Incarnation| {
            let entry = self.table.get(id);
            // Also one that is written anew: until that is durable, this one keeps the version away.
            entry.is_some_and(|e| e.tomb != Tomb::None)
        };
        bucket.tombs = found.tombstones.into_iter().filter(known).collect();
        self.disk_bytes += bucket.bytes;
        self.next_bucket = self.next_bucket.max(bucket.id.0.saturating_add(1));
        self.buckets.insert(bucket.id, bucket);
    }
}
