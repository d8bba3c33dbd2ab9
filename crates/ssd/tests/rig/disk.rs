//! A disk in memory that keeps apart what was written and what was synced.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use snowskin_ssd::event::OpId;
use snowskin_ssd::format::BucketId;
use snowskin_ssd::format::bucket::file_name;
use snowskin_ssd::recover::{FileKind, Listed};
use std::collections::BTreeMap;

const SECTOR: usize = 512;

#[derive(Debug, Default, Clone)]
pub struct File {
    /// What a reader sees.
    pub data: Vec<u8>,
    /// What a loss of power leaves.
    durable: Vec<u8>,
    /// Written and not synced, by sequence number.
    unsynced: Vec<(u64, usize, Vec<u8>)>,
}

/// A change under way.
#[derive(Debug, Clone)]
pub enum Change {
    Create {
        bytes: u64,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    /// Covers the writes up to this number.
    Sync {
        upto: u64,
    },
    Delete,
}

#[derive(Debug, Clone)]
pub struct Pending {
    pub op: OpId,
    pub bucket: BucketId,
    pub change: Change,
}

/// How the writer is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The process dies: what was written stays written.
    Kill,
    /// Power goes: of what was not synced any part may be there, in any order.
    Power,
}

#[derive(Debug, Default, Clone)]
pub struct Disk {
    pub files: BTreeMap<BucketId, File>,
    sequence: u64,
}

impl Disk {
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub fn used(&self) -> u64 {
        self.files.values().map(|f| f.data.len() as u64).sum()
    }

    pub fn listing(&self) -> Vec<Listed> {
        let file = |(bucket, file): (&BucketId, &File)| Listed {
            name: file_name(*bucket).into_bytes(),
            kind: FileKind::File,
            bytes: file.data.len() as u64,
        };
        self.files.iter().map(file).collect()
    }

    pub fn read(&self, bucket: BucketId, offset: u64, bytes: u64) -> Option<&[u8]> {
        let file = self.files.get(&bucket)?;
        file.data.get(offset as usize..(offset + bytes) as usize)
    }

    /// Carries a change out in full.
    pub fn apply(&mut self, pending: &Pending) {
        match &pending.change {
            Change::Create { bytes } => {
                let empty = vec![0; *bytes as usize];
                let file = File {
                    data: empty.clone(),
                    durable: empty,
                    unsynced: Vec::new(),
                };
                assert!(self.files.insert(pending.bucket, file).is_none());
            }
            Change::Write { offset, data } => self.write(pending.bucket, *offset as usize, data),
            Change::Sync { upto } => {
                let file = self.files.get_mut(&pending.bucket).unwrap();
                let (now, later): (Vec<_>, Vec<_>) =
                    file.unsynced.drain(..).partition(|(n, ..)| n <= upto);
                for (_, offset, data) in now {
                    file.durable[offset..offset + data.len()].copy_from_slice(&data);
                }
                file.unsynced = later;
            }
            Change::Delete => assert!(self.files.remove(&pending.bucket).is_some()),
        }
    }

    fn write(&mut self, bucket: BucketId, offset: usize, data: &[u8]) {
        self.sequence += 1;
        let file = self.files.get_mut(&bucket).unwrap();
        file.data[offset..offset + data.len()].copy_from_slice(data);
        file.unsynced.push((self.sequence, offset, data.to_vec()));
    }

    /// Carries out a part of a change that nobody will hear the end of.
    pub fn apply_part(&mut self, pending: &Pending, rng: &mut ChaCha8Rng) {
        match &pending.change {
            Change::Write { offset, data } => {
                for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                    if rng.random_bool(0.7) {
                        self.write(pending.bucket, *offset as usize + sector * SECTOR, bytes);
                    }
                }
            }
            Change::Create { .. } => match rng.random_range(0..3) {
                0 => {}
                1 => {
                    self.files.insert(pending.bucket, File::default());
                }
                _ => self.apply(pending),
            },
            _ if rng.random() => self.apply(pending),
            _ => {}
        }
    }

    /// The writer is cut off with these changes under way.
    pub fn cut(&mut self, cut: Cut, mut under_way: Vec<Pending>, rng: &mut ChaCha8Rng) {
        under_way.shuffle(rng);
        for pending in &under_way {
            match rng.random_range(0..3) {
                0 => {}
                // Its bucket may have been deleted by another one meanwhile.
                1 if self.touches(pending) => self.apply(pending),
                _ if self.touches(pending) => self.apply_part(pending, rng),
                _ => {}
            }
        }
        if cut == Cut::Kill {
            return;
        }
        for file in self.files.values_mut() {
            let mut unsynced = std::mem::take(&mut file.unsynced);
            unsynced.shuffle(rng);
            for (_, offset, data) in unsynced {
                if rng.random_bool(0.4) {
                    continue;
                }
                let torn = rng.random_bool(0.3);
                for (sector, bytes) in data.chunks(SECTOR).enumerate() {
                    if !torn || rng.random() {
                        let at = offset + sector * SECTOR;
                        file.durable[at..at + bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            file.data = file.durable.clone();
        }
    }

    fn touches(&self, pending: &Pending) -> bool {
        matches!(pending.change, Change::Create { .. }) != self.files.contains_key(&pending.bucket)
    }

    /// Damages some bytes for good.
    pub fn flip(&mut self, rng: &mut ChaCha8Rng) {
        let buckets: Vec<_> = self.files.keys().copied().collect();
        for bucket in buckets {
            let file = self.files.get_mut(&bucket).unwrap();
            if file.data.is_empty() || rng.random() {
                continue;
            }
            for _ in 0..rng.random_range(1..8) {
                let at = rng.random_range(0..file.data.len());
                let bit = 1 << rng.random_range(0..8);
                file.data[at] ^= bit;
                file.durable[at] = file.data[at];
            }
        }
    }
}
