//! Messages of the data server.

use crate::error::DecodeError;
use crate::frame::Kind;
use crate::message::Message;
use crate::shared::{
    append, attributes, attributes_wire, failure, failure_wire, key_bytes, name, parse, same_count,
};
use crate::wire;
use bytes::{Bytes, BytesMut};
use snowskin_types::access::{ReadRequest, WriteRequest};
use snowskin_types::checksum::{PieceSums, piece_count};
use snowskin_types::error::Failure;
use snowskin_types::id::Epoch;
use snowskin_types::limits::{OBJECT_BYTES_MAX, PIECE_BYTES};
use snowskin_types::object::Shape;
use snowskin_types::time::Millis;
use snowskin_types::version::Version;

/// The answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteDone(pub Result<(), Failure>);

/// Announces the bytes of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadHead {
    /// Size and checksum of the whole version.
    pub shape: Shape,
    /// First byte that is sent.
    pub offset: u64,
    /// Bytes that are sent; at least one.
    pub len: u64,
    /// One checksum for each piece of the object that the range touches, over the part of the piece
    /// that is in the range.
    pub sums: PieceSums,
}

/// Most sums of one run of a range.
pub const RANGE_SUMS_MAX: usize = 64;

/// Names bytes of a region that the receiver has registered for one-sided access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeRequest {
    /// Process life of the receiver that registered the region.
    pub epoch: Epoch,
    /// Its number in that life.
    pub region: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes; at least one.
    pub len: u64,
}

/// Asks for the bytes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeRead(pub RangeRequest);

/// Announces bytes for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeWrite(pub RangeRequest);

/// The sums of the next run of a range: one per piece, counted from the first byte of the range. At
/// least one and at most [`RANGE_SUMS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSums(pub PieceSums);

/// Number of pieces that a range touches.
pub(crate) fn pieces_touched(offset: u64, len: u64) -> u64 {
    match len {
        0 => 0,
        _ => (offset + len - 1) / PIECE_BYTES - offset / PIECE_BYTES + 1,
    }
}

fn range(field: &'static str, value: impl ToString, allowed: &'static str) -> DecodeError {
    DecodeError::Range {
        field,
        value: value.to_string(),
        allowed,
    }
}

fn object_size(size: u64) -> Result<u64, DecodeError> {
    if size == 0 || size > OBJECT_BYTES_MAX {
        return Err(range("size", size, "1 byte to 4 TiB"));
    }
    Ok(size)
}

fn sums(sums: Vec<u64>, wanted: u64) -> Result<PieceSums, DecodeError> {
    same_count(
        "checksums",
        sums.len(),
        usize::try_from(wanted).unwrap_or(usize::MAX),
    )?;
    Ok(PieceSums(sums.into_boxed_slice()))
}

impl Message for WriteRequest {
    const KIND: Kind = Kind::Write;

    fn encode_body(&self, out: &mut BytesMut) {
        let message = wire::WriteRequest {
            epoch: self.epoch.0,
            tenant: self.name.tenant.as_str().to_owned(),
            key: key_bytes(&self.name.key),
            version: self.version.raw(),
            size: self.size,
            sums: self.sums.0.to_vec(),
            attributes: attributes_wire(&self.attributes),
            patience_ms: self.patience.0,
        };
        append(&message, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let w: wire::WriteRequest = parse(body)?;
        let size = object_size(w.size)?;
        Ok(WriteRequest {
            epoch: Epoch(w.epoch),
            name: name(&w.tenant, &w.key)?,
            version: Version::from_raw(w.version),
            size,
            sums: sums(w.sums, piece_count(size))?,
            attributes: attributes(w.attributes)?,
            patience: Millis(w.patience_ms),
        })
    }
}

impl Message for WriteDone {
    const KIND: Kind = Kind::WriteDone;

    fn encode_body(&self, out: &mut BytesMut) {
        let failure = self.0.as_ref().err().map(failure_wire);
        append(&wire::WriteDone { failure }, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let done: wire::WriteDone = parse(body)?;
        Ok(WriteDone(match done.failure {
            None => Ok(()),
            Some(f) => Err(failure(f)?),
        }))
    }
}

impl Message for ReadRequest {
    const KIND: Kind = Kind::Read;

    fn encode_body(&self, out: &mut BytesMut) {
        let message = wire::ReadRequest {
            epoch: self.epoch.0,
            tenant: self.name.tenant.as_str().to_owned(),
            key: key_bytes(&self.name.key),
            version: self.version.raw(),
            offset: self.offset,
            len: self.len,
        };
        append(&message, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let r: wire::ReadRequest = parse(body)?;
        Ok(ReadRequest {
            epoch: Epoch(r.epoch),
            name: name(&r.tenant, &r.key)?,
            version: Version::from_raw(r.version),
            offset: r.offset,
            len: r.len,
        })
    }
}

impl Message for ReadHead {
    const KIND: Kind = Kind::ReadHead;

    fn encode_body(&self, out: &mut BytesMut) {
        let message = wire::ReadHead {
            size: self.shape.size,
            checksum: self.shape.checksum,
            offset: self.offset,
            len: self.len,
            sums: self.sums.0.to_vec(),
        };
        append(&message, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let head: wire::ReadHead = parse(body)?;
        let size = object_size(head.size)?;
        let inside = head
            .offset
            .checked_add(head.len)
            .is_some_and(|end| end <= size);
        if head.len == 0 || !inside {
            return Err(range(
                "range",
                format!("{}+{}", head.offset, head.len),
                "inside the object",
            ));
        }
        Ok(ReadHead {
            shape: Shape {
                size,
                checksum: head.checksum,
            },
            offset: head.offset,
            len: head.len,
            sums: sums(head.sums, pieces_touched(head.offset, head.len))?,
        })
    }
}

fn range_encode(request: &RangeRequest, out: &mut BytesMut) {
    let message = wire::RangeRequest {
        epoch: request.epoch.0,
        region: request.region,
        offset: request.offset,
        len: request.len,
    };
    append(&message, out);
}

fn range_decode(body: Bytes) -> Result<RangeRequest, DecodeError> {
    let r: wire::RangeRequest = parse(body)?;
    if r.len == 0 || r.offset.checked_add(r.len).is_none() {
        let given = format!("{}+{}", r.offset, r.len);
        return Err(range(
            "range",
            given,
            "at least one byte, with an end in 64 bits",
        ));
    }
    Ok(RangeRequest {
        epoch: Epoch(r.epoch),
        region: r.region,
        offset: r.offset,
        len: r.len,
    })
}

impl Message for RangeRead {
    const KIND: Kind = Kind::RangeRead;

    fn encode_body(&self, out: &mut BytesMut) {
        range_encode(&self.0, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        range_decode(body).map(RangeRead)
    }
}

impl Message for RangeWrite {
    const KIND: Kind = Kind::RangeWrite;

    fn encode_body(&self, out: &mut BytesMut) {
        range_encode(&self.0, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        range_decode(body).map(RangeWrite)
    }
}

impl Message for RangeSums {
    const KIND: Kind = Kind::RangeSums;

    fn encode_body(&self, out: &mut BytesMut) {
        let sums = self.0.0.to_vec();
        append(&wire::RangeSums { sums }, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let s: wire::RangeSums = parse(body)?;
        if s.sums.is_empty() || s.sums.len() > RANGE_SUMS_MAX {
            return Err(range("sums of a run", s.sums.len(), "1 to 64"));
        }
        Ok(RangeSums(PieceSums(s.sums.into_boxed_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_touches_the_pieces_of_its_first_to_its_last_byte() {
        let p = PIECE_BYTES;
        for (offset, len, pieces) in [
            (0, 0, 0),
            (0, 1, 1),
            (0, p, 1),
            (0, p + 1, 2),
            (p - 1, 2, 2),
            (p, p, 1),
            (1, p, 2),
        ] {
            assert_eq!(pieces_touched(offset, len), pieces, "{offset} {len}");
        }
    }
}
