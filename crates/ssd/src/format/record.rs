//! Records: a head of whole blocks that says everything about the bytes that follow it.

use super::bytes::Reader;
use super::{
    BucketId, DiskId, FormatError, attributes, begin_structure, close_structure, open_structure,
};
use crate::sizing::blocks;
use snowskin_types::checksum::{PieceSums, crc64, piece_count, piece_len};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::PIECE_BYTES;
use snowskin_types::object::{Attributes, Shape};
use snowskin_types::version::Version;
use std::sync::Arc;

/// What a record's head begins with.
pub const MAGIC: &[u8; 8] = b"SNOWRECD";
/// Bytes of a head before tenant, key, attributes and sums.
pub const FIXED_BYTES: usize = 80;
/// Longest head, in bytes: whatever a head claims, no more is read.
pub const HEAD_BYTES_MAX: u64 = 128 << 10;
/// Largest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: u64 = crate::sizing::BUCKET_BYTES_MAX;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One object.
    Object,
    /// A list of retired versions.
    Tombstones,
}

/// Whether the master had acknowledged a version when its record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acked {
    /// It had.
    Yes,
    /// Not that this node knew.
    #[default]
    No,
}

/// All that is known of an object but its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Tenant and key.
    pub name: ObjectName,
    /// Incarnation.
    pub version: Version,
    /// Bytes and their checksum.
    pub shape: Shape,
    /// Pins, group, data type.
    pub attributes: Attributes,
    /// Checksums of its pieces.
    pub sums: PieceSums,
    /// Whether it was acknowledged.
    pub acked: Acked,
}

impl Descriptor {
    /// Bytes of the head that a record of it has.
    pub fn head_bytes(&self) -> u64 {
        blocks((FIXED_BYTES + self.body_bytes()) as u64)
    }

    /// Bytes of the whole record.
    pub fn record_bytes(&self) -> u64 {
        self.head_bytes().saturating_add(blocks(self.shape.size))
    }

    pub(crate) fn body_bytes(&self) -> usize {
        let mut tlvs = Vec::new();
        attributes::encode(&self.attributes, &mut tlvs);
        let name = self.name.tenant.as_str().len() + self.name.key.as_bytes().len();
        name + tlvs.len() + self.sums.0.len() * 8
    }

    /// Whether lengths and sums agree with each other.
    pub fn is_coherent(&self) -> bool {
        self.shape.size <= PAYLOAD_BYTES_MAX
            && self.sums.0.len() as u64 == piece_count(self.shape.size)
            && self.sums.whole(self.shape.size) == self.shape.checksum
    }
}

/// Tenant, key, attributes and sums one after the other, with the lengths of the first three.
pub(crate) struct Body {
    pub(crate) lens: [u16; 3],
    pub(crate) bytes: Vec<u8>,
}

impl Body {
    pub(crate) fn of(d: &Descriptor) -> Self {
        let (tenant, key) = (d.name.tenant.as_str().as_bytes(), d.name.key.as_bytes());
        let mut bytes = [tenant, key].concat();
        attributes::encode(&d.attributes, &mut bytes);
        let tlvs = bytes.len() - tenant.len() - key.len();
        for sum in &d.sums.0 {
            bytes.extend_from_slice(&sum.to_le_bytes());
        }
        // The limits of names and groups keep all three below 65,536.
        let lens = [tenant.len(), key.len(), tlvs].map(|l| u16::try_from(l).unwrap_or(u16::MAX));
        Body { lens, bytes }
    }
}

/// Numbers that head and footer entry have in common.
pub(crate) struct Numbers {
    pub(crate) lens: [u16; 3],
    pub(crate) pieces: u32,
    pub(crate) version: u64,
    pub(crate) size: u64,
    pub(crate) checksum: u64,
    pub(crate) flags: u8,
}

const ACKED: u8 = 1;

pub(crate) fn flags(acked: Acked) -> u8 {
    match acked {
        Acked::Yes => ACKED,
        Acked::No => 0,
    }
}

/// Reads a body and checks it against the numbers.
pub(crate) fn descriptor(
    numbers: &Numbers,
    body: &mut Reader<'_>,
) -> Result<Descriptor, FormatError> {
    if numbers.size > PAYLOAD_BYTES_MAX {
        return Err(FormatError::Field("payload bytes"));
    }
    if u64::from(numbers.pieces) != piece_count(numbers.size) {
        return Err(FormatError::Field("pieces"));
    }
    let [tenant, key, tlvs] = numbers.lens.map(usize::from);
    let tenant = std::str::from_utf8(body.take(tenant)?)
        .ok()
        .and_then(|text| Tenant::new(text).ok())
        .ok_or(FormatError::Field("tenant"))?;
    let key = Key::new(body.take(key)?).map_err(|_| FormatError::Field("key"))?;
    let attributes = attributes::decode(body.take(tlvs)?)?;
    let mut sums = Reader::new(body.take(numbers.pieces as usize * 8)?);
    let sums: Result<Box<[u64]>, _> = (0..numbers.pieces).map(|_| sums.u64()).collect();
    let found = Descriptor {
        name: ObjectName::new(tenant, key),
        version: Version::from_raw(numbers.version),
        shape: Shape {
            size: numbers.size,
            checksum: numbers.checksum,
        },
        attributes,
        sums: PieceSums(sums?),
        acked: if numbers.flags & ACKED == 0 {
            Acked::No
        } else {
            Acked::Yes
        },
    };
    if !found.is_coherent() {
        return Err(FormatError::Field("sums"));
    }
    Ok(found)
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which bucket.
    pub bucket: BucketId,
    /// Where its head begins there.
    pub offset: u64,
}

/// A sound head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head: the payload begins behind them.
    pub head_bytes: u64,
    /// What the payload is.
    pub content: Content,
}

/// What a head announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// An object's bytes.
    Object(Arc<Descriptor>),
    /// A list of retired versions of this many bytes, with its piece checksums.
    Tombstones {
        /// Bytes.
        size: u64,
        /// Checksums of its pieces.
        sums: PieceSums,
    },
}

impl Head {
    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> u64 {
        match &self.content {
            Content::Object(descriptor) => descriptor.shape.size,
            Content::Tombstones { size, .. } => *size,
        }
    }

    /// Bytes of the whole record.
    pub fn record_bytes(&self) -> u64 {
        self.head_bytes.saturating_add(blocks(self.payload_bytes()))
    }

    /// Checksums of the payload's pieces.
    pub fn sums(&self) -> &PieceSums {
        match &self.content {
            Content::Object(descriptor) => &descriptor.sums,
            Content::Tombstones { sums, .. } => sums,
        }
    }
}

/// The head of an object's record, whole blocks.
pub fn encode_object(disk: DiskId, at: Position, d: &Descriptor) -> Vec<u8> {
    let body = Body::of(d);
    let numbers = Numbers {
        lens: body.lens,
        pieces: d.sums.0.len() as u32,
        version: d.version.raw(),
        size: d.shape.size,
        checksum: d.shape.checksum,
        flags: flags(d.acked),
    };
    encode(disk, at, Kind::Object, &numbers, &body.bytes)
}

/// A whole record of retired versions, head and payload, whole blocks.
pub fn encode_tombstones(disk: DiskId, at: Position, list: &[u8]) -> Vec<u8> {
    let sums = PieceSums::of(list);
    let body: Vec<u8> = sums.0.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let numbers = Numbers {
        lens: [0; 3],
        pieces: sums.0.len() as u32,
        version: 0,
        size: list.len() as u64,
        checksum: crc64(list),
        flags: 0,
    };
    let mut out = encode(disk, at, Kind::Tombstones, &numbers, &body);
    out.extend_from_slice(list);
    out.resize(blocks(out.len() as u64) as usize, 0);
    out
}

fn encode(disk: DiskId, at: Position, kind: Kind, numbers: &Numbers, body: &[u8]) -> Vec<u8> {
    let whole = blocks((FIXED_BYTES + body.len()) as u64);
    let mut out = begin_structure(MAGIC, whole as usize);
    out.push(match kind {
        Kind::Object => 1,
        Kind::Tombstones => 2,
    });
    out.push(numbers.flags);
    out.extend_from_slice(&(whole as u32).to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&numbers.pieces.to_le_bytes());
    for number in [
        numbers.size,
        at.bucket.0,
        at.offset,
        numbers.version,
        numbers.checksum,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for len in numbers.lens {
        out.extend_from_slice(&len.to_le_bytes());
    }
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(body);
    close_structure(Some(disk), &mut out);
    out.resize(whole as usize, 0);
    out
}

/// Reads the head that begins with the bytes. They may end before the head does; `Short` is then
/// told only when the part that is there promises a head of allowed length.
///
/// # Errors
/// When there is no sound head of this disk written at this place.
pub fn decode(disk: DiskId, at: Position, bytes: &[u8]) -> Result<Head, FormatError> {
    let fixed = bytes.get(..FIXED_BYTES).ok_or(FormatError::Short)?;
    if fixed.get(..8) != Some(MAGIC) {
        return Err(FormatError::Magic);
    }
    // Only to learn how much the checksum covers.
    let mut lens = Reader::new(fixed.get(20..28).ok_or(FormatError::Short)?);
    let head_bytes = u64::from(lens.u32()?);
    let covered = FIXED_BYTES as u64 + u64::from(lens.u32()?);
    if head_bytes > HEAD_BYTES_MAX || head_bytes != blocks(covered) {
        return Err(FormatError::Field("head bytes"));
    }
    let mut reader = open_structure(Some(disk), MAGIC, bytes, covered as usize)?;
    let kind = reader.u8()?;
    let flags = reader.u8()?;
    reader.take(8)?;
    let pieces = reader.u32()?;
    let size = reader.u64()?;
    let place = Position {
        bucket: BucketId(reader.u64()?),
        offset: reader.u64()?,
    };
    if place != at {
        return Err(FormatError::Field("position"));
    }
    let version = reader.u64()?;
    let checksum = reader.u64()?;
    let lens = [reader.u16()?, reader.u16()?, reader.u16()?];
    reader.u16()?;
    let numbers = Numbers {
        lens,
        pieces,
        version,
        size,
        checksum,
        flags,
    };
    let content = match kind {
        1 => Content::Object(Arc::new(descriptor(&numbers, &mut reader)?)),
        2 => {
            if size > super::tombstone::LIST_BYTES_MAX {
                return Err(FormatError::Field("payload bytes"));
            }
            if u64::from(pieces) != piece_count(size) {
                return Err(FormatError::Field("pieces"));
            }
            let sums: Result<Box<[u64]>, _> = (0..pieces).map(|_| reader.u64()).collect();
            Content::Tombstones {
                size,
                sums: PieceSums(sums?),
            }
        }
        _ => return Err(FormatError::Field("kind")),
    };
    if !reader.rest().is_empty() {
        return Err(FormatError::Field("body bytes"));
    }
    Ok(Head {
        head_bytes,
        content,
    })
}

/// Whether bytes that begin at piece `first` of an object of `size` bytes have the sums. They are
/// to be whole pieces, the object's last one excepted.
pub fn pieces_are_sound(size: u64, sums: &PieceSums, first: u64, bytes: &[u8]) -> bool {
    let start = first.saturating_mul(PIECE_BYTES);
    let Some(end) = start.checked_add(bytes.len() as u64) else {
        return false;
    };
    if end > size || (end != size && end % PIECE_BYTES != 0) {
        return false;
    }
    bytes
        .chunks(PIECE_BYTES as usize)
        .zip(first..)
        .all(|(piece, index)| {
            let known = usize::try_from(index).ok().and_then(|i| sums.0.get(i));
            piece.len() as u64 == piece_len(size, index) && known == Some(&crc64(piece))
        })
}
