//! A bucket's file name and its first block.

use super::{
    BLOCK_BYTES, BucketId, DiskId, FormatError, begin_structure, close_structure, open_structure,
};

const MAGIC: &[u8; 8] = b"SNOWBUCK";
const LEN: usize = 64;
const PREFIX: &str = "bucket-";
const DIGITS: usize = 16;

/// Name of a bucket's file: `bucket-` and its number as 16 lower-case hexadecimal digits.
pub fn file_name(bucket: BucketId) -> String {
    format!("{PREFIX}{:016x}", bucket.0)
}

/// The bucket that a file name means; `None` for every other name, also for other spellings and
/// for numbers that no log reaches.
pub fn parse_file_name(name: &[u8]) -> Option<BucketId> {
    let digits = name.strip_prefix(PREFIX.as_bytes())?;
    let plain = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
    if digits.len() != DIGITS || !digits.iter().all(plain) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    let number = u64::from_str_radix(text, 16).ok()?;
    (number < 1 << 63).then_some(BucketId(number))
}

/// First block of a bucket. Records prove themselves without it; it is for people and tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketHeader {
    /// Which bucket.
    pub bucket: BucketId,
    /// Bytes of the file.
    pub bytes: u64,
    /// Value of the superblock's counter in the life that made the bucket.
    pub opened: u64,
}

impl BucketHeader {
    /// The block.
    pub fn encode(&self, disk: DiskId) -> Vec<u8> {
        let mut out = begin_structure(MAGIC, BLOCK_BYTES as usize);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&disk.0);
        out.extend_from_slice(&self.bucket.0.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.opened.to_le_bytes());
        close_structure(Some(disk), &mut out);
        out.resize(BLOCK_BYTES as usize, 0);
        out
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is damaged or of another disk.
    pub fn decode(disk: DiskId, block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = open_structure(Some(disk), MAGIC, block, LEN)?;
        reader.take(6)?;
        if reader.id()? != disk.0 {
            return Err(FormatError::Field("disk"));
        }
        Ok(BucketHeader {
            bucket: BucketId(reader.u64()?),
            bytes: reader.u64()?,
            opened: reader.u64()?,
        })
    }
}
