//! CRC-64/NVME, one per 256 KiB piece of an object plus their combination over the whole.

use crate::limits::PIECE_BYTES;
use crc_fast::CrcAlgorithm;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// Checksum of one run of bytes.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(ALGORITHM, bytes)
}

/// Checksum of the concatenation of two runs, from theirs and the length of the second.
pub fn combine(first: u64, second: u64, second_len: u64) -> u64 {
    crc_fast::checksum_combine(ALGORITHM, first, second, second_len)
}

/// Number of pieces of an object of `size` bytes.
pub fn piece_count(size: u64) -> u64 {
    size.div_ceil(PIECE_BYTES)
}

/// Length of piece `index` of an object of `size` bytes.
pub fn piece_len(size: u64, index: u64) -> u64 {
    size.saturating_sub(index.saturating_mul(PIECE_BYTES))
        .min(PIECE_BYTES)
}

/// Checksums of an object: one per piece, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PieceSums(pub Box<[u64]>);

impl PieceSums {
    /// Computes them over a contiguous object.
    pub fn of(bytes: &[u8]) -> Self {
        PieceSums(bytes.chunks(PIECE_BYTES as usize).map(crc64).collect())
    }

    /// Combines them into the checksum of the whole object of `size` bytes.
    pub fn whole(&self, size: u64) -> u64 {
        let mut sums = self.0.iter().zip(0u64..);
        let Some((&first, _)) = sums.next() else {
            return crc64(&[]);
        };
        sums.fold(first, |acc, (&sum, i)| {
            combine(acc, sum, piece_len(size, i))
        })
    }
}

/// Computes piece checksums of bytes that arrive in runs of any length.
#[derive(Debug)]
pub struct PieceHasher {
    digest: crc_fast::Digest,
    in_piece: u64,
    sums: Vec<u64>,
}

impl Default for PieceHasher {
    fn default() -> Self {
        PieceHasher {
            digest: crc_fast::Digest::new(ALGORITHM),
            in_piece: 0,
            sums: Vec::new(),
        }
    }
}

impl PieceHasher {
    /// Takes the next run.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (PIECE_BYTES - self.in_piece) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.digest.update(now);
            self.in_piece += now.len() as u64;
            if self.in_piece == PIECE_BYTES {
                self.close();
            }
            bytes = later;
        }
    }

    fn close(&mut self) {
        self.sums.push(self.digest.finalize());
        self.digest.reset();
        self.in_piece = 0;
    }

    /// Ends the object.
    pub fn finish(mut self) -> PieceSums {
        if self.in_piece > 0 {
            self.close();
        }
        PieceSums(self.sums.into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_64_nvme_is_met() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn combined_pieces_equal_the_checksum_of_the_whole() {
        for len in [1usize, 4095, 262_144, 262_145, 700_001] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let sums = PieceSums::of(&bytes);
            assert_eq!(sums.0.len() as u64, piece_count(len as u64));
            assert_eq!(sums.whole(len as u64), crc64(&bytes), "{len}");
            let mut hasher = PieceHasher::default();
            for run in bytes.chunks(10_007) {
                hasher.update(run);
            }
            assert_eq!(hasher.finish(), sums);
        }
    }
}
