//! Seeded random choices (SplitMix64): the same seed draws the same numbers.

#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Draw(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (zero when the bound is zero).
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The upper half of a 64 x 64 bit product is even enough for placement.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
