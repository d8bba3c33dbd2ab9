//! From a number of blocks to segments and watermarks.

/// Segments are cut in units of so many bytes.
const UNIT: u64 = 4096;
/// Blocks of room above the high watermark: the largest requests of real traces are below this.
const HEADROOM_BLOCKS: u64 = 640;
/// Share of the watermark that one run of eviction frees.
const EVICTION_SHARE: f64 = 0.005;

/// What each node is started with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeSize {
    /// Bytes of the segment.
    pub segment: u64,
    /// High watermark as a share of it.
    pub high: f64,
    /// Share of it that one run of eviction frees.
    pub ratio: f64,
}

/// Bytes that one block takes in a segment.
pub fn block_footprint(block_bytes: u64) -> u64 {
    block_bytes.next_multiple_of(UNIT)
}

/// Sizes nodes whose high watermarks together are `capacity_blocks`.
pub fn limited(capacity_blocks: u64, block_bytes: u64, nodes: u64) -> NodeSize {
    let block = block_footprint(block_bytes);
    let high = capacity_blocks.div_ceil(nodes.max(1)).max(1) * block;
    let segment = high
        + (high / 9)
            .next_multiple_of(UNIT)
            .max(HEADROOM_BLOCKS * block);
    // A hair above the exact share, so that rounding never costs a block.
    let share = (high as f64 + 0.5) / segment as f64;
    NodeSize {
        segment,
        high: share,
        ratio: share * EVICTION_SHARE,
    }
}

/// Sizes nodes that hold `blocks` without ever evicting, however unevenly they are spread.
pub fn unlimited(blocks: u64, block_bytes: u64, nodes: u64) -> NodeSize {
    let block = block_footprint(block_bytes);
    let even = blocks.div_ceil(nodes.max(1));
    // Random placement deviates from even by a few times the square root.
    let spread = 8 * even.isqrt() + HEADROOM_BLOCKS;
    NodeSize {
        segment: (even + spread) * block,
        high: 1.0,
        ratio: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermarks_add_up_to_the_capacity() {
        for (blocks, nodes) in [(5859, 2), (1, 1), (1000, 3), (97_656, 2)] {
            let size = limited(blocks, 65_536, nodes);
            let high = (size.segment as f64 * size.high) as u64;
            assert_eq!(high / 65_536, blocks.div_ceil(nodes));
            assert!(size.high <= 1.0 && size.high > 0.0);
        }
    }

    #[test]
    fn small_blocks_take_a_whole_unit() {
        assert_eq!(block_footprint(1), 4096);
        assert_eq!(block_footprint(65_536), 65_536);
    }
}
