//! CRC-64/NVME, one per 256 KiB piece of an object plus their combination over the whole.

use crate::limits::PIECE_BYTES;
use crc_fast::CrcAlgorithm;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// Checksum of one run of bytes.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(ALGORITHM, bytes)
}

/// Checksum of the concatenation of two runs, from theirs and the length of the second.
///
/// The first one moves up by as many bits as follow it, a product of polynomials per set bit of
/// the length: well under a microsecond. (Building the shift as a matrix, as the library does,
/// costs more than hashing the piece itself.)
pub fn combine(first: u64, second: u64, second_len: u64) -> u64 {
    let mut shifted = first;
    for (bit, power) in SHIFT_BY_BYTES.iter().enumerate() {
        if second_len >> bit & 1 == 1 {
            shifted = multiply(shifted, *power);
        }
    }
    shifted ^ second
}

/// The polynomial of CRC-64/NVME without its highest term; bit 63 is the constant term.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// Entry `k` is x to the power of 8 * 2^k: what 2^k more bytes do to the bits before them.
const SHIFT_BY_BYTES: [u64; 64] = {
    let mut powers = [0; 64];
    powers[0] = 1 << (63 - 8);
    let mut k = 1;
    while k < 64 {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// The product of two polynomials over GF(2), reduced by [`POLYNOMIAL`].
const fn multiply(a: u64, b: u64) -> u64 {
    let mut product = 0;
    let mut shifted = b;
    let mut term = 0;
    while term < 64 {
        // Masks instead of branches, since the bits of a checksum cannot be predicted.
        product ^= shifted & 0u64.wrapping_sub(a >> (63 - term) & 1);
        shifted = (shifted >> 1) ^ (POLYNOMIAL & 0u64.wrapping_sub(shifted & 1));
        term += 1;
    }
    product
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
    /// For bytes that begin at `offset` of the object: the first sum is over what is left of the
    /// piece there.
    pub fn starting_at(offset: u64) -> Self {
        PieceHasher {
            in_piece: offset % PIECE_BYTES,
            ..Self::default()
        }
    }

    /// Sums of the pieces that are complete so far.
    pub fn complete(&self) -> &[u64] {
        &self.sums
    }

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
    fn combining_agrees_with_the_library_at_any_length() {
        let (first, second) = (crc64(b"first"), crc64(b"second"));
        for len in (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1, u64::MAX >> bit]) {
            let expected = crc_fast::checksum_combine(ALGORITHM, first, second, len);
            assert_eq!(combine(first, second, len), expected, "{len}");
        }
        assert_eq!(combine(first, second, 6), crc64(b"firstsecond"));
        assert_eq!(combine(first, crc64(b""), 0), first);
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

    #[test]
    fn a_hasher_that_starts_amid_a_piece_closes_it_at_its_end() {
        let bytes = vec![7; 2 * PIECE_BYTES as usize];
        let start = PIECE_BYTES - 10;
        let mut hasher = PieceHasher::starting_at(start);
        hasher.update(&bytes[start as usize..]);
        let sums = [crc64(&bytes[..10]), crc64(&bytes[..PIECE_BYTES as usize])];
        assert_eq!(hasher.complete(), sums);
    }
}
