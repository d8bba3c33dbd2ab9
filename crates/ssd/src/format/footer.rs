//! The index that is written at the end of a bucket when it is sealed, so that recovery reads only
//! that. It is written after everything that it names was synced.

use super::bytes::Reader;
use super::record::{self, Body, Descriptor, Numbers};
use super::tombstone::Incarnation;
use super::{
    BLOCK_BYTES, BucketId, DiskId, FormatError, begin_structure, bound_sum, close_structure,
    open_structure,
};
use crate::sizing::blocks;
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::version::Version;
use std::sync::Arc;

const TRAILER_MAGIC: &[u8; 8] = b"SNOWFOOT";
const TRAILER_LEN: usize = 72;
const ENTRY_FIXED: usize = 48;

/// Longest index, in bytes: whatever a trailer claims, no more is read.
pub const INDEX_BYTES_MAX: u64 = 16 << 20;

/// One line of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A record that counts.
    Object {
        /// Where its head begins.
        offset: u64,
        /// What it holds.
        descriptor: Arc<Descriptor>,
    },
    /// A record that may be there and does not count: its write failed, or its version was retired.
    Void(Incarnation),
    /// A version that was retired.
    Tombstone(Incarnation),
}

/// Bytes that a line takes.
pub fn entry_bytes(entry: &Entry) -> u64 {
    let name = |name: &ObjectName| name.tenant.as_str().len() + name.key.as_bytes().len();
    let body = match entry {
        Entry::Object { descriptor, .. } => descriptor.body_bytes(),
        Entry::Void(i) | Entry::Tombstone(i) => name(&i.name),
    };
    (ENTRY_FIXED + body) as u64
}

/// The last block of a sealed bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Where the index begins.
    pub offset: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// Lines of it.
    pub count: u32,
    /// Damaged records that were found and left out when a bucket was sealed by recovery.
    pub damaged: u32,
    /// Checksum of the index.
    pub checksum: u64,
}

/// Index and trailer as one run of whole blocks that ends with the bucket, and where it begins.
/// `None` when it does not fit behind `records_end` or above the bound.
pub fn encode(
    disk: DiskId,
    bucket: BucketId,
    bucket_bytes: u64,
    records_end: u64,
    damaged: u32,
    entries: &[Entry],
) -> Option<(u64, Vec<u8>)> {
    let mut index = Vec::new();
    for entry in entries {
        encode_entry(entry, &mut index);
    }
    let bytes = index.len() as u64;
    let whole = blocks(bytes) + BLOCK_BYTES;
    let offset = bucket_bytes.checked_sub(whole)?;
    if offset < records_end || bytes > INDEX_BYTES_MAX {
        return None;
    }
    let mut trailer = begin_structure(TRAILER_MAGIC, TRAILER_LEN);
    trailer.extend_from_slice(&[0; 6]);
    for number in [bucket.0, offset, bytes] {
        trailer.extend_from_slice(&number.to_le_bytes());
    }
    for number in [u32::try_from(entries.len()).ok()?, damaged] {
        trailer.extend_from_slice(&number.to_le_bytes());
    }
    trailer.extend_from_slice(&bound_sum(disk, &index).to_le_bytes());
    trailer.extend_from_slice(&records_end.to_le_bytes());
    close_structure(Some(disk), &mut trailer);
    index.resize(blocks(bytes) as usize, 0);
    index.extend_from_slice(&trailer);
    index.resize(whole as usize, 0);
    Some((offset, index))
}

fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    let plain = |i: &Incarnation| {
        let (tenant, key) = (i.name.tenant.as_str().as_bytes(), i.name.key.as_bytes());
        let lens = [tenant.len(), key.len(), 0].map(|l| u16::try_from(l).unwrap_or(u16::MAX));
        let numbers = Numbers {
            lens,
            pieces: 0,
            version: i.version.raw(),
            size: 0,
            checksum: 0,
            flags: 0,
        };
        (numbers, [tenant, key].concat())
    };
    let (kind, offset, (numbers, body)) = match entry {
        Entry::Object { offset, descriptor } => {
            let body = Body::of(descriptor);
            let numbers = Numbers {
                lens: body.lens,
                pieces: descriptor.sums.0.len() as u32,
                version: descriptor.version.raw(),
                size: descriptor.shape.size,
                checksum: descriptor.shape.checksum,
                flags: record::flags(descriptor.acked),
            };
            (1u8, *offset, (numbers, body.bytes))
        }
        Entry::Tombstone(i) => (2, 0, plain(i)),
        Entry::Void(i) => (3, 0, plain(i)),
    };
    out.push(kind);
    out.push(numbers.flags);
    for len in numbers.lens {
        out.extend_from_slice(&len.to_le_bytes());
    }
    out.extend_from_slice(&numbers.pieces.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for number in [offset, numbers.version, numbers.size, numbers.checksum] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&body);
}

/// Reads the last block of a bucket of `bucket_bytes`.
///
/// # Errors
/// When the bucket is not sealed, or the block is damaged.
pub fn decode_trailer(
    disk: DiskId,
    bucket: BucketId,
    bucket_bytes: u64,
    block: &[u8],
) -> Result<Trailer, FormatError> {
    let mut reader = open_structure(Some(disk), TRAILER_MAGIC, block, TRAILER_LEN)?;
    reader.take(6)?;
    if reader.u64()? != bucket.0 {
        return Err(FormatError::Field("bucket"));
    }
    let trailer = Trailer {
        offset: reader.u64()?,
        bytes: reader.u64()?,
        count: reader.u32()?,
        damaged: reader.u32()?,
        checksum: reader.u64()?,
    };
    let fits = trailer.bytes <= INDEX_BYTES_MAX
        && trailer.offset >= BLOCK_BYTES
        && trailer
            .offset
            .checked_add(blocks(trailer.bytes) + BLOCK_BYTES)
            == Some(bucket_bytes);
    if !fits {
        return Err(FormatError::Field("index bytes"));
    }
    Ok(trailer)
}

/// Reads the index that a trailer announces.
///
/// # Errors
/// When it is damaged.
pub fn decode(disk: DiskId, trailer: &Trailer, bytes: &[u8]) -> Result<Vec<Entry>, FormatError> {
    let index = usize::try_from(trailer.bytes)
        .ok()
        .and_then(|len| bytes.get(..len))
        .ok_or(FormatError::Short)?;
    if bound_sum(disk, index) != trailer.checksum {
        return Err(FormatError::Checksum);
    }
    let mut reader = Reader::new(index);
    // The bytes that are there bound the list, whatever its count claims.
    let mut entries = Vec::with_capacity((trailer.count as usize).min(index.len() / ENTRY_FIXED));
    let mut tenant = Tenant::default();
    while !reader.rest().is_empty() {
        entries.push(decode_entry(trailer, &mut reader, &mut tenant)?);
    }
    if entries.len() != trailer.count as usize {
        return Err(FormatError::Field("count"));
    }
    Ok(entries)
}

fn decode_entry(
    trailer: &Trailer,
    reader: &mut Reader<'_>,
    tenant: &mut Tenant,
) -> Result<Entry, FormatError> {
    let kind = reader.u8()?;
    let flags = reader.u8()?;
    let lens = [reader.u16()?, reader.u16()?, reader.u16()?];
    let pieces = reader.u32()?;
    reader.u32()?;
    let offset = reader.u64()?;
    let numbers = Numbers {
        lens,
        pieces,
        version: reader.u64()?,
        size: reader.u64()?,
        checksum: reader.u64()?,
        flags,
    };
    if kind == 1 {
        let mut found = record::descriptor(&numbers, reader)?;
        // Most records are of few tenants: one name in memory serves all in a row.
        if found.name.tenant == *tenant {
            found.name.tenant = tenant.clone();
        } else {
            *tenant = found.name.tenant.clone();
        }
        let inside = offset >= BLOCK_BYTES
            && offset.is_multiple_of(BLOCK_BYTES)
            && offset
                .checked_add(found.record_bytes())
                .is_some_and(|end| end <= trailer.offset);
        if !inside {
            return Err(FormatError::Field("offset"));
        }
        return Ok(Entry::Object {
            offset,
            descriptor: Arc::new(found),
        });
    }
    let [tenant_len, key_len, _] = lens.map(usize::from);
    let text = std::str::from_utf8(reader.take(tenant_len)?)
        .ok()
        .and_then(|text| Tenant::new(text).ok())
        .ok_or(FormatError::Field("tenant"))?;
    let key = Key::new(reader.take(key_len)?).map_err(|_| FormatError::Field("key"))?;
    let incarnation = Incarnation {
        name: ObjectName::new(text, key),
        version: Version::from_raw(numbers.version),
    };
    match kind {
        2 => Ok(Entry::Tombstone(incarnation)),
        3 => Ok(Entry::Void(incarnation)),
        _ => Err(FormatError::Field("kind")),
    }
}
