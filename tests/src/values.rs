//! Values that are a function of key and size, so that every wrong byte is seen.

/// The value of `key` with `len` bytes.
pub fn value(key: &[u8], len: usize) -> Vec<u8> {
    let mut state = key.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    }) ^ (len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A destination with 64 bytes of canary on both sides.
pub struct Guarded {
    bytes: Vec<u8>,
    len: usize,
}

const CANARY: u8 = 0xa5;
const MARGIN: usize = 64;

impl Guarded {
    /// Room for `len` bytes.
    pub fn new(len: usize) -> Self {
        Guarded {
            bytes: vec![CANARY; len + 2 * MARGIN],
            len,
        }
    }

    /// The room.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[MARGIN..MARGIN + self.len]
    }

    /// What is in it; panics when a canary was touched.
    pub fn check(&self) -> &[u8] {
        let (before, rest) = self.bytes.split_at(MARGIN);
        let (room, after) = rest.split_at(self.len);
        assert!(
            before.iter().chain(after).all(|b| *b == CANARY),
            "a canary was touched"
        );
        room
    }

    /// True when no byte of the room was written.
    pub fn untouched(&self) -> bool {
        self.check().iter().all(|b| *b == CANARY)
    }
}
