//! The file that says which disk slot this is. Two copies, written in turn, so that a torn write
//! leaves the other.

use super::{BLOCK_BYTES, DiskId, FormatError, begin_structure, close_structure, open_structure};
use crate::sizing::is_bucket_size;
use snowskin_types::id::ClusterId;

/// Name of the file in its slot directory.
pub const FILE_NAME: &str = "superblock";
/// Length of the file: two copies of one block each.
pub const FILE_BYTES: u64 = 2 * BLOCK_BYTES;

const MAGIC: &[u8; 8] = b"SNOWDISK";
const LEN: usize = 64;

/// What a slot directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Which disk slot.
    pub disk: DiskId,
    /// Cluster that it has served last; zero before the first registration.
    pub cluster: ClusterId,
    /// How often it has been opened: raised durably before anything else is written.
    pub opened: u64,
    /// Bytes of each new bucket.
    pub bucket_bytes: u64,
}

impl Superblock {
    /// The block, and the offset in the file at which it is to be written: the copy that does not
    /// hold the former one.
    pub fn encode(&self) -> (u64, Vec<u8>) {
        let mut out = begin_structure(MAGIC, BLOCK_BYTES as usize);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.disk.0);
        out.extend_from_slice(&self.cluster.0.to_le_bytes());
        out.extend_from_slice(&self.opened.to_le_bytes());
        out.extend_from_slice(&self.bucket_bytes.to_le_bytes());
        close_structure(None, &mut out);
        out.resize(BLOCK_BYTES as usize, 0);
        (self.opened % 2 * BLOCK_BYTES, out)
    }

    /// Reads the file: the later of the copies that are sound.
    ///
    /// # Errors
    /// What is wrong with the first copy, when neither is sound.
    pub fn decode(file: &[u8]) -> Result<Self, FormatError> {
        let first = Self::decode_copy(file);
        let second = Self::decode_copy(file.get(BLOCK_BYTES as usize..).unwrap_or_default());
        match (first, second) {
            (Ok(a), Ok(b)) => Ok(if b.opened > a.opened { b } else { a }),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(error), Err(FormatError::Magic | FormatError::Short)) => Err(error),
            (Err(_), Err(error)) => Err(error),
        }
    }

    fn decode_copy(block: &[u8]) -> Result<Self, FormatError> {
        let mut reader = open_structure(None, MAGIC, block, LEN)?;
        reader.take(6)?;
        let superblock = Superblock {
            disk: DiskId(reader.id()?),
            cluster: ClusterId(reader.u64()?),
            opened: reader.u64()?,
            bucket_bytes: reader.u64()?,
        };
        if !is_bucket_size(superblock.bucket_bytes) {
            return Err(FormatError::Field("bucket bytes"));
        }
        Ok(superblock)
    }
}
