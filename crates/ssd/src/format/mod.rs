//! The bytes on the disk. The tables of docs/design/bucket-format.md are law; tests compare.
//!
//! Every number is little-endian and of fixed width. Every checksum is CRC-64/NVME and begins with the
//! disk's id, so that bytes of another disk, or bytes that a user chose, never pass for a record here;
//! a record's head also names the bucket and the offset it was written at.

pub mod attributes;
pub mod bucket;
pub mod bytes;
pub mod footer;
pub mod record;
pub mod superblock;
pub mod tombstone;

use bytes::Reader;
use snowskin_types::checksum::{combine, crc64};

/// Unit of all offsets and lengths on the disk.
pub const BLOCK_BYTES: u64 = 4096;
/// Version of the format that is written; others are not read.
pub const FORMAT_VERSION: u16 = 1;

/// Identity of one disk slot: random, chosen when its superblock is made, told to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiskId(pub [u8; 16]);

impl std::fmt::Debug for DiskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DiskId({self})")
    }
}

impl std::fmt::Display for DiskId {
    /// Shows a digest, since the id itself is what makes records hard to forge.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", crc64(&self.0))
    }
}

/// Number of a bucket in its slot; grows, is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BucketId(pub u64);

/// Why bytes are not what they were read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Fewer bytes than the structure has.
    #[error("the bytes end within the structure")]
    Short,
    /// They do not begin with the magic.
    #[error("the magic is not there")]
    Magic,
    /// Written by a format that is not read here.
    #[error("format version {0} is not known; {FORMAT_VERSION} is")]
    FormatVersion(u16),
    /// Torn, damaged, of another disk or at another place.
    #[error("the checksum does not fit")]
    Checksum,
    /// The checksum fits, but a field is out of its bounds.
    #[error("the field {0} is out of its bounds")]
    Field(&'static str),
}

/// Checksum over the disk's id and then these bytes.
pub(crate) fn bound_sum(disk: DiskId, bytes: &[u8]) -> u64 {
    combine(crc64(&disk.0), crc64(bytes), bytes.len() as u64)
}

/// Checks magic, checksum and format version of a structure whose checksum stands at 8, over what
/// is from 16 to `len`, and whose format version stands at 16. The reader stands at 18.
pub(crate) fn open_structure<'a>(
    disk: Option<DiskId>,
    magic: &[u8; 8],
    bytes: &'a [u8],
    len: usize,
) -> Result<Reader<'a>, FormatError> {
    if bytes.get(..8).ok_or(FormatError::Short)? != magic {
        return Err(FormatError::Magic);
    }
    let mut reader = Reader::new(bytes.get(8..len).ok_or(FormatError::Short)?);
    let sum = reader.u64()?;
    let covered = reader.rest();
    let found = disk.map_or_else(|| crc64(covered), |disk| bound_sum(disk, covered));
    if sum != found {
        return Err(FormatError::Checksum);
    }
    match reader.u16()? {
        FORMAT_VERSION => Ok(reader),
        other => Err(FormatError::FormatVersion(other)),
    }
}

/// Sets the checksum at 8 over what is from 16 to the end. (The first 16 bytes are there.)
pub(crate) fn close_structure(disk: Option<DiskId>, bytes: &mut [u8]) {
    let Some((front, covered)) = bytes.split_at_mut_checked(16) else {
        return;
    };
    let sum = disk.map_or_else(|| crc64(covered), |disk| bound_sum(disk, covered));
    if let Some(place) = front.get_mut(8..16) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

/// Begins a structure: magic, room for the checksum, format version.
pub(crate) fn begin_structure(magic: &[u8; 8], capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(magic);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out
}
