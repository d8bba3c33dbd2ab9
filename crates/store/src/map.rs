//! A hash map from numbers to numbers that grows a shard at a time.
//!
//! A plain table of a million entries stalls for a good part of a second when it doubles; of these
//! shards each is so small that its growth does not show. Never iterated, so no order shows.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const SHARDS: usize = 256;

/// Spreads the bits of a number. Keys are either hashes with a secret or numbers given out here, so
/// nobody outside can aim at collisions.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = spread(self.0 ^ number);
    }
}

fn spread(number: u64) -> u64 {
    let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ ((product >> 64) as u64)
}

/// The map.
#[derive(Debug)]
pub(crate) struct NumberMap {
    shards: Box<[HashMap<u64, u32, BuildHasherDefault<Spread>>]>,
    len: usize,
}

impl Default for NumberMap {
    fn default() -> Self {
        NumberMap {
            shards: (0..SHARDS).map(|_| HashMap::default()).collect(),
            len: 0,
        }
    }
}

impl NumberMap {
    // The table uses the lowest and the highest bits, so the shard comes from between.
    fn shard(key: u64) -> usize {
        (spread(key) >> 40) as usize % SHARDS
    }

    pub(crate) fn insert(&mut self, key: u64, value: u32) -> Option<u32> {
        let before = self.shards[Self::shard(key)].insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        self.shards[Self::shard(key)].get(&key).copied()
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let before = self.shards[Self::shard(key)].remove(&key);
        self.len -= usize::from(before.is_some());
        before
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_gets_its_part_of_consecutive_and_of_strided_keys() {
        for stride in [1u64, 256, 1 << 32, 4096 << 20] {
            let mut map = NumberMap::default();
            for n in 0..100_000u64 {
                assert_eq!(map.insert(n.wrapping_mul(stride), n as u32), None);
            }
            let sizes: Vec<_> = map.shards.iter().map(HashMap::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(*least > 250 && *most < 550, "{stride}: {least} to {most}");
            assert_eq!(map.get(stride.wrapping_mul(77)), Some(77));
            assert_eq!(map.remove(stride.wrapping_mul(77)), Some(77));
            assert_eq!(
                (map.get(stride.wrapping_mul(77)), map.len()),
                (None, 99_999)
            );
        }
    }
}
