//! Counts of a run.

use crate::trace::read::{BLOCK_TOKENS, TraceRequest};

/// What a run of requests found in the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// Block references.
    pub block_refs: u64,
    /// Of these, found.
    pub block_hits: u64,
    /// Of these, in the unbroken run of hits at the start of their request: what an engine can reuse.
    pub prefix_hits: u64,
    /// Prompt tokens.
    pub tokens: u64,
    /// Of these, in found blocks.
    pub token_hits: u64,
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl Tally {
    /// Takes one request and which of its blocks were found, in order.
    pub fn add(&mut self, request: &TraceRequest, found: &[bool]) {
        self.requests += 1;
        self.block_refs += found.len() as u64;
        self.prefix_hits += found.iter().take_while(|f| **f).count() as u64;
        let mut left = request.input_length;
        for found in found {
            let tokens = left.min(BLOCK_TOKENS);
            left -= tokens;
            self.tokens += tokens;
            if *found {
                self.block_hits += 1;
                self.token_hits += tokens;
            }
        }
    }

    /// Found share of block references.
    pub fn block_hit_rate(&self) -> f64 {
        share(self.block_hits, self.block_refs)
    }

    /// Share of block references in reusable prefixes.
    pub fn prefix_hit_rate(&self) -> f64 {
        share(self.prefix_hits, self.block_refs)
    }

    /// Found share of prompt tokens.
    pub fn token_hit_rate(&self) -> f64 {
        share(self.token_hits, self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_prefix_counts_as_block_hits_only() {
        let request = TraceRequest {
            timestamp: 0,
            input_length: 1100,
            output_length: 1,
            hash_ids: vec![1, 2, 3],
        };
        let mut tally = Tally::default();
        tally.add(&request, &[true, false, true]);
        assert_eq!((tally.block_hits, tally.prefix_hits), (2, 1));
        assert_eq!((tally.token_hits, tally.tokens), (512 + 76, 1100));
    }
}
