//! Bytes of blocks: a function of the block's id, so that every wrong byte is seen.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes at the start of a block that spell its id.
const ID_BYTES: usize = 8;
const SHIFTS: usize = 65_536;

/// Makes and checks the bytes of blocks of one size.
pub struct Content {
    base: Vec<u8>,
    len: usize,
}

impl Content {
    /// For blocks of `len` bytes.
    pub fn new(len: usize) -> Self {
        let mut base = vec![0; len + SHIFTS];
        ChaCha8Rng::seed_from_u64(len as u64).fill_bytes(&mut base);
        Content { base, len }
    }

    /// Where the run that stands for `id` begins in the common random bytes.
    fn run(&self, id: u64) -> &[u8] {
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let shift = (mixed >> 48) as usize;
        self.base.get(shift..shift + self.len).unwrap_or(&[])
    }

    fn head(&self, id: u64) -> ([u8; ID_BYTES], usize) {
        (id.to_le_bytes(), self.len.min(ID_BYTES))
    }

    /// Writes the bytes of `id` into `target`.
    pub fn fill(&self, id: u64, target: &mut [u8]) {
        target.copy_from_slice(self.run(id));
        let (head, len) = self.head(id);
        if let (Some(target), Some(head)) = (target.get_mut(..len), head.get(..len)) {
            target.copy_from_slice(head);
        }
    }

    /// Number of bytes that are not those of `id`.
    pub fn wrong_bytes(&self, id: u64, got: &[u8]) -> u64 {
        let (head, len) = self.head(id);
        let run = self.run(id);
        let same = got.len() == self.len
            && got.get(..len) == head.get(..len)
            && got.get(len..) == run.get(len..);
        if same {
            return 0;
        }
        let expected = head.iter().take(len).chain(run.iter().skip(len));
        let differing = expected.zip(got).filter(|(a, b)| a != b).count();
        (differing + got.len().abs_diff(self.len)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_byte_is_counted() {
        for len in [1usize, 7, 8, 4096] {
            let content = Content::new(len);
            let mut block = vec![0; len];
            content.fill(77, &mut block);
            assert_eq!(content.wrong_bytes(77, &block), 0);
            for at in 0..len {
                block[at] ^= 0x40;
                assert_eq!(content.wrong_bytes(77, &block), 1, "{len} {at}");
                block[at] ^= 0x40;
            }
            assert!(content.wrong_bytes(78, &block) > 0);
            assert!(content.wrong_bytes(77, &block[1..]) > 0);
        }
    }
}
