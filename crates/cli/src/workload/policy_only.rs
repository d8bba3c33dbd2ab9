//! The eviction policy alone, without bytes and without a pool: what it would have kept.

use crate::trace::read::TraceRequest;
use crate::workload::tally::Tally;
use snowskin_store::evict::Shadow;
use snowskin_types::policy::EvictionPolicy;

/// Runs a trace through a policy with room for `capacity_blocks`. Returns the counts and the evictions.
pub fn run(trace: &[TraceRequest], policy: EvictionPolicy, capacity_blocks: u64) -> (Tally, u64) {
    let mut shadow = Shadow::new(policy, capacity_blocks);
    let mut tally = Tally::default();
    let mut found = Vec::new();
    for request in trace {
        found.clear();
        found.extend(request.hash_ids.iter().map(|id| shadow.lookup(*id)));
        for (id, hit) in request.hash_ids.iter().zip(&found) {
            if !hit {
                // An id that stands twice in one request is stored once.
                shadow.store(*id, 1);
            }
        }
        tally.add(request, &found);
    }
    (tally, shadow.evictions())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::generate::{Shape, generate};

    #[test]
    fn unlimited_room_misses_each_block_once_and_evicts_nothing() {
        let trace = generate(Shape {
            requests: 300,
            ..Shape::default()
        });
        let (tally, evictions) = run(&trace, EvictionPolicy::Lru, u64::MAX);
        let mut distinct: Vec<u64> = trace.iter().flat_map(|r| r.hash_ids.clone()).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(tally.block_refs - tally.block_hits, distinct.len() as u64);
        assert_eq!(evictions, 0);
    }

    #[test]
    fn less_room_finds_less() {
        let trace = generate(Shape {
            requests: 300,
            ..Shape::default()
        });
        for policy in [EvictionPolicy::Lru, EvictionPolicy::S3Fifo] {
            let (small, evictions) = run(&trace, policy, 200);
            let (large, _) = run(&trace, policy, 100_000);
            assert!(small.block_hits < large.block_hits);
            assert!(evictions > 0);
        }
    }
}
