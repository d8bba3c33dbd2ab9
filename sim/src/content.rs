//! What the bytes of a put look like: every word names the put and its place, so that any mixture
//! of two puts, any shift and any stale byte is seen, and can be named.

/// One put's attempt to store bytes; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PutId(pub u32);

fn word(put: PutId, index: u64) -> [u8; 8] {
    ((u64::from(put.0) << 32) | (index & 0xffff_ffff)).to_le_bytes()
}

/// Writes the bytes `offset..` of a put; `offset` is a multiple of 8.
pub fn fill(put: PutId, offset: u64, target: &mut [u8]) {
    for (index, chunk) in target.chunks_mut(8).enumerate() {
        let word = word(put, offset / 8 + index as u64);
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Where bytes of an object (from `offset`, a multiple of 8) first differ from a put's.
pub fn first_difference(put: PutId, offset: u64, bytes: &[u8]) -> Option<u64> {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let word = word(put, offset / 8 + index as u64);
        if chunk != &word[..chunk.len()] {
            return Some(offset + 8 * index as u64);
        }
    }
    None
}

/// Names what stands in a word, for messages.
pub fn describe(bytes: &[u8], at: u64) -> String {
    let Some(word) = bytes
        .get(at as usize..at as usize + 8)
        .and_then(|w| w.try_into().ok())
        .map(u64::from_le_bytes)
    else {
        return "a torn word".to_owned();
    };
    if word == u64::from_le_bytes([FRESH; 8]) {
        return "never written memory".to_owned();
    }
    format!("byte {} of put {}", (word & 0xffff_ffff) * 8, word >> 32)
}

/// What memory holds before it is written.
pub const FRESH: u8 = 0xee;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_puts_and_shifts_are_seen() {
        let mut bytes = vec![0; 100];
        fill(PutId(7), 64, &mut bytes);
        assert_eq!(first_difference(PutId(7), 64, &bytes), None);
        assert_eq!(first_difference(PutId(8), 64, &bytes), Some(64));
        assert_eq!(first_difference(PutId(7), 72, &bytes), Some(72));
        bytes[50] ^= 1;
        assert_eq!(first_difference(PutId(7), 64, &bytes), Some(64 + 48));
    }
}
