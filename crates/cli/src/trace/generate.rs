//! Makes a multi-turn workload with shared prefixes from a seed.

use crate::trace::read::{BLOCK_TOKENS, TraceRequest};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What the workload looks like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Seed; the same seed makes the same trace on every machine.
    pub seed: u64,
    /// Requests in all.
    pub requests: usize,
    /// Different system prompts that conversations begin with.
    pub systems: usize,
    /// Conversations under way at any time.
    pub open: usize,
    /// Most turns of one conversation.
    pub turns_max: usize,
    /// Trace time in milliseconds.
    pub span_ms: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            seed: 1,
            requests: 2_000,
            systems: 8,
            open: 64,
            turns_max: 12,
            span_ms: 600_000,
        }
    }
}

struct Conversation {
    blocks: Vec<u64>,
    turns_left: usize,
}

/// Makes the trace. Each request's prompt is its conversation so far plus new blocks; conversations
/// share the blocks of one of a few system prompts of skewed popularity.
pub fn generate(shape: Shape) -> Vec<TraceRequest> {
    let mut rng = ChaCha8Rng::seed_from_u64(shape.seed);
    let mut next_id = 0u64;
    let mut fresh = |count: usize| -> Vec<u64> {
        let from = next_id;
        next_id += count as u64;
        (from..next_id).collect()
    };
    let systems: Vec<Vec<u64>> = (0..shape.systems.max(1))
        .map(|_| fresh(rng.random_range(1..=8)))
        .collect();
    let mut open: Vec<Conversation> = Vec::new();
    let mut trace = Vec::with_capacity(shape.requests);
    for index in 0..shape.requests {
        let start_new = open.len() < shape.open.max(1);
        let at = if start_new {
            // The smaller of two draws favours the first system prompts.
            let pick = rng
                .random_range(0..systems.len())
                .min(rng.random_range(0..systems.len()));
            let blocks = systems.get(pick).cloned().unwrap_or_default();
            let turns_left = rng.random_range(1..=shape.turns_max.max(1));
            open.push(Conversation { blocks, turns_left });
            open.len() - 1
        } else {
            rng.random_range(0..open.len())
        };
        let grown = fresh(rng.random_range(1..=6));
        let tail = rng.random_range(1..=BLOCK_TOKENS);
        let output_length = rng.random_range(16..=768);
        let Some(conversation) = open.get_mut(at) else {
            continue;
        };
        conversation.blocks.extend(grown);
        conversation.turns_left -= 1;
        let count = conversation.blocks.len() as u64;
        trace.push(TraceRequest {
            timestamp: shape.span_ms * index as u64 / shape.requests.max(1) as u64,
            input_length: (count - 1) * BLOCK_TOKENS + tail,
            output_length,
            hash_ids: conversation.blocks.clone(),
        });
        if conversation.turns_left == 0 {
            open.swap_remove(at);
        }
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_makes_the_same_trace_and_another_seed_another() {
        let shape = Shape {
            requests: 200,
            ..Shape::default()
        };
        assert_eq!(generate(shape), generate(shape));
        assert_ne!(generate(shape), generate(Shape { seed: 2, ..shape }));
    }

    #[test]
    fn prefixes_are_shared_within_and_across_conversations() {
        let trace = generate(Shape {
            requests: 500,
            ..Shape::default()
        });
        let mut seen = HashSet::new();
        let (mut references, mut hits) = (0u64, 0u64);
        for request in &trace {
            for id in &request.hash_ids {
                references += 1;
                hits += u64::from(seen.contains(id));
            }
            seen.extend(request.hash_ids.iter().copied());
        }
        let rate = hits as f64 / references as f64;
        assert!((0.3..0.95).contains(&rate), "{rate}");
    }
}
