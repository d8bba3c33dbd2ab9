//! A cache without bytes: what a policy would have kept of a trace.

use super::{Entry, Policy, policy};
use snowskin_types::policy::EvictionPolicy;
use std::collections::HashSet;

/// Ids held under a policy and a capacity. The unit of sizes is the caller's: blocks or bytes.
#[derive(Debug)]
pub struct Shadow {
    policy: Box<dyn Policy>,
    held: HashSet<u64>,
    capacity: u64,
    evictions: u64,
}

impl Shadow {
    /// Makes an empty one.
    pub fn new(kind: EvictionPolicy, capacity: u64) -> Self {
        Shadow {
            policy: policy(kind, capacity),
            held: HashSet::new(),
            capacity,
            evictions: 0,
        }
    }

    /// Looks an id up; a hit counts as a use.
    pub fn lookup(&mut self, id: u64) -> bool {
        let hit = self.held.contains(&id);
        if hit {
            self.policy.touch(id);
        }
        hit
    }

    /// Stores an id that is not held, after evicting for it; false when it can never fit, or is held.
    pub fn store(&mut self, id: u64, size: u64) -> bool {
        if size > self.capacity || self.held.contains(&id) {
            return false;
        }
        while self.policy.bytes() > self.capacity - size {
            let Some(victim) = self.policy.victim() else {
                break;
            };
            self.held.remove(&victim);
            self.evictions += 1;
        }
        self.policy.insert(Entry {
            id,
            print: id,
            size,
        });
        self.held.insert(id);
        true
    }

    /// Objects thrown out so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Number of objects held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True without objects.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Bytes (or blocks) held.
    pub fn bytes(&self) -> u64 {
        self.policy.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten requests: four conversations whose prefixes come back, between requests of another one
    /// that scans through blocks it never uses again.
    fn trace() -> Vec<Vec<u64>> {
        let mut requests = Vec::new();
        for round in 0..40u64 {
            requests.push(vec![0, 1, 2, 3]);
            requests.push((0..6).map(|i| 1000 + round * 6 + i).collect());
        }
        requests
    }

    fn hits(kind: EvictionPolicy, capacity: u64) -> (u64, u64) {
        let mut cache = Shadow::new(kind, capacity);
        let (mut hits, mut refs) = (0, 0);
        for request in trace() {
            let missing: Vec<_> = request
                .iter()
                .filter(|id| !cache.lookup(**id))
                .copied()
                .collect();
            hits += (request.len() - missing.len()) as u64;
            refs += request.len() as u64;
            missing.iter().for_each(|id| {
                cache.store(*id, 1);
            });
            assert!(cache.bytes() <= capacity);
            assert_eq!(cache.bytes(), cache.len() as u64);
        }
        (hits, refs)
    }

    #[test]
    fn a_scan_flushes_lru_and_is_filtered_by_s3_fifo() {
        // 4 + 6 blocks a round: a scan of six flushes all that LRU has room for.
        assert_eq!(hits(EvictionPolicy::Lru, 6).0, 0);
        assert_eq!(hits(EvictionPolicy::Lru, 10), (39 * 4, 400));
        let (s3, _) = hits(EvictionPolicy::S3Fifo, 6);
        assert!(s3 >= 30 * 4, "{s3}");
        assert_eq!(hits(EvictionPolicy::S3Fifo, 1000).0, 39 * 4);
    }

    #[test]
    fn what_can_never_fit_evicts_nothing() {
        let mut cache = Shadow::new(EvictionPolicy::Lru, 4);
        (0..4).for_each(|id| assert!(cache.store(id, 1)));
        assert!(!cache.store(9, 5));
        assert_eq!((cache.len(), cache.evictions()), (4, 0));
        assert!(cache.store(9, 3));
        assert_eq!((cache.len(), cache.evictions()), (2, 3));
    }
}
