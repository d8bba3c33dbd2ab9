//! Conversions of the words that several messages share.

use crate::error::DecodeError;
use crate::frame::Kind;
use crate::message::{Closing, Message, ReadFailed};
use crate::wire;
use bytes::{Bytes, BytesMut};
use snowskin_types::call::Keys;
use snowskin_types::error::{Code, Detail, Failure, Stage};
use snowskin_types::id::{Epoch, NodeId, Session, Term};
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::limits::BATCH_ITEMS_MAX;
use snowskin_types::link::NodeFigures;
use snowskin_types::object::{Attributes, Place, Tier};
use snowskin_types::time::Millis;
use std::sync::Arc;

/// Longest address or host name, in bytes.
pub(crate) const ADDRESS_BYTES_MAX: usize = 512;
/// Longest text made for people (error messages, policy lines), in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Longest name of a group, in bytes.
pub(crate) const GROUP_BYTES_MAX: usize = 1024;

pub(crate) fn figures_wire(figures: Option<NodeFigures>) -> Option<wire::NodeFigures> {
    figures.map(|f| wire::NodeFigures {
        held: f.held,
        held_bytes: f.held_bytes,
        pins: f.pins,
        reads: f.reads,
        put_waited: f.put_waited,
        put_wait_failed: f.put_wait_failed,
        checksum_failures: f.checksum_failures,
    })
}

pub(crate) fn figures(figures: Option<wire::NodeFigures>) -> Option<NodeFigures> {
    figures.map(|f| NodeFigures {
        held: f.held,
        held_bytes: f.held_bytes,
        pins: f.pins,
        reads: f.reads,
        put_waited: f.put_waited,
        put_wait_failed: f.put_wait_failed,
        checksum_failures: f.checksum_failures,
    })
}

/// Parses raw protobuf.
pub(crate) fn parse<W: prost::Message + Default>(body: Bytes) -> Result<W, DecodeError> {
    W::decode(body).map_err(|e| DecodeError::Malformed {
        reason: e.to_string(),
    })
}

/// Appends raw protobuf.
pub(crate) fn append<W: prost::Message>(message: &W, out: &mut BytesMut) {
    out.reserve(message.encoded_len());
    // A growing buffer always has room for what was reserved.
    message.encode_raw(out);
}

pub(crate) fn require<T>(value: Option<T>, field: &'static str) -> Result<T, DecodeError> {
    value.ok_or(DecodeError::Missing { field })
}

pub(crate) fn unknown<T>(field: &'static str, value: impl Into<u64>) -> Result<T, DecodeError> {
    Err(DecodeError::Unknown {
        field,
        value: value.into(),
    })
}

pub(crate) fn same_count(
    field: &'static str,
    given: usize,
    wanted: usize,
) -> Result<(), DecodeError> {
    if given == wanted {
        Ok(())
    } else {
        Err(DecodeError::Count {
            field,
            given,
            wanted,
        })
    }
}

/// Refuses text longer than its bound.
pub(crate) fn text(field: &'static str, text: &str, max: usize) -> Result<Arc<str>, DecodeError> {
    if text.len() > max {
        return Err(DecodeError::TooMany {
            field,
            given: text.len(),
            max,
        });
    }
    Ok(text.into())
}

/// Cuts text for people to its bound, at a character.
pub(crate) fn cut(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

pub(crate) fn tenant(name: &str) -> Result<Tenant, DecodeError> {
    Ok(Tenant::new(name)?)
}

pub(crate) fn key(bytes: &[u8]) -> Result<Key, DecodeError> {
    Ok(Key::new(bytes)?)
}

pub(crate) fn name(tenant: &str, key: &[u8]) -> Result<ObjectName, DecodeError> {
    Ok(ObjectName::new(Tenant::new(tenant)?, Key::new(key)?))
}

/// The bytes of a key, for sending.
pub(crate) fn key_bytes(key: &Key) -> Bytes {
    Bytes::copy_from_slice(key.as_bytes())
}

pub(crate) fn keys(bytes: Bytes, lens: &[u32]) -> Result<Keys, DecodeError> {
    if lens.len() > BATCH_ITEMS_MAX {
        return Err(DecodeError::TooMany {
            field: "keys",
            given: lens.len(),
            max: BATCH_ITEMS_MAX,
        });
    }
    // A sum of the lengths that differs from the bytes is a broken message, not a bad key.
    let sum: u64 = lens.iter().map(|len| u64::from(*len)).sum();
    if sum != bytes.len() as u64 {
        let wanted = usize::try_from(sum).unwrap_or(usize::MAX);
        return Err(DecodeError::Count {
            field: "bytes of the keys",
            given: bytes.len(),
            wanted,
        });
    }
    Ok(Keys::unpack(bytes.into(), lens)?)
}

/// Both fields of packed keys, for sending.
pub(crate) fn packed(keys: &Keys) -> (Bytes, Vec<u32>) {
    (Bytes::copy_from_slice(keys.packed()), keys.lens().collect())
}

pub(crate) fn tier(number: u32) -> Result<Tier, DecodeError> {
    match number {
        0 => Ok(Tier::Dram),
        1 => Ok(Tier::Ssd),
        other => unknown("tier", other),
    }
}

pub(crate) fn tier_number(tier: Tier) -> u32 {
    match tier {
        Tier::Dram => 0,
        Tier::Ssd => 1,
    }
}

pub(crate) fn place(place: wire::Place) -> Result<Place, DecodeError> {
    Ok(Place {
        node: NodeId(place.node),
        epoch: Epoch(place.epoch),
        address: text("address", &place.address, ADDRESS_BYTES_MAX)?,
    })
}

pub(crate) fn place_wire(place: &Place) -> wire::Place {
    wire::Place {
        node: place.node.0,
        epoch: place.epoch.0,
        address: place.address.as_ref().to_owned(),
    }
}

pub(crate) fn session(session: Option<wire::Session>) -> Session {
    // A message of no session is one of the lowest, which nobody ever has.
    session
        .map(|s| Session {
            term: Term(s.term),
            n: s.n,
        })
        .unwrap_or_default()
}

pub(crate) fn session_wire(session: Session) -> Option<wire::Session> {
    Some(wire::Session {
        term: session.term.0,
        n: session.n,
    })
}

pub(crate) fn attributes(attributes: Option<wire::Attributes>) -> Result<Attributes, DecodeError> {
    let Some(a) = attributes else {
        return Ok(Attributes::default());
    };
    Ok(Attributes {
        hard_pin: a.hard_pin,
        soft_pin: a.soft_pin_ms.map(Millis),
        group: a
            .group
            .map(|group| text("group", &group, GROUP_BYTES_MAX))
            .transpose()?,
        data_type: a.data_type,
    })
}

pub(crate) fn attributes_wire(attributes: &Attributes) -> Option<wire::Attributes> {
    // The usual object has none, and then they take no bytes.
    (*attributes != Attributes::default()).then(|| wire::Attributes {
        hard_pin: attributes.hard_pin,
        soft_pin_ms: attributes.soft_pin.map(|pin| pin.0),
        group: attributes.group.as_deref().map(str::to_owned),
        data_type: attributes.data_type,
    })
}

fn stage(number: u32) -> Stage {
    match number {
        1 => Stage::Reserve,
        2 => Stage::Write,
        3 => Stage::Publish,
        4 => Stage::Locate,
        5 => Stage::Read,
        6 => Stage::Verify,
        // A later version may know more stages; the failure itself still counts.
        _ => Stage::Session,
    }
}

fn stage_number(stage: Stage) -> u32 {
    match stage {
        Stage::Reserve => 1,
        Stage::Write => 2,
        Stage::Publish => 3,
        Stage::Locate => 4,
        Stage::Read => 5,
        Stage::Verify => 6,
        Stage::Session => 7,
    }
}

pub(crate) fn failure(f: wire::Failure) -> Result<Failure, DecodeError> {
    let code = Code::from_number(f.code);
    let mut message = cut(&f.message);
    if code.number() != f.code {
        message = format!("{message} (code {} is not known to this version)", f.code);
    }
    Ok(Failure {
        code,
        message,
        key: f.key.map(|bytes| key(&bytes)).transpose()?,
        peer: f
            .peer
            .map(|peer| text("peer", &peer, ADDRESS_BYTES_MAX).map(|peer| peer.as_ref().to_owned()))
            .transpose()?,
        stage: stage(f.stage),
        detail: f.detail.map(|d| Detail {
            wanted: d.wanted,
            free: d.free,
            largest: d.largest,
            leased: d.leased,
            pinned: d.pinned,
            unfinished: d.unfinished,
        }),
    })
}

pub(crate) fn failure_wire(f: &Failure) -> wire::Failure {
    wire::Failure {
        code: f.code.number(),
        message: cut(&f.message),
        key: f.key.as_ref().map(key_bytes),
        peer: f
            .peer
            .as_ref()
            .filter(|peer| peer.len() <= ADDRESS_BYTES_MAX)
            .cloned(),
        stage: stage_number(f.stage),
        detail: f.detail.map(|d| wire::Detail {
            wanted: d.wanted,
            free: d.free,
            largest: d.largest,
            leased: d.leased,
            pinned: d.pinned,
            unfinished: d.unfinished,
        }),
    }
}

/// Makes a failure in other words a message.
macro_rules! failure_message {
    ($value:ident) => {
        impl Message for $value {
            const KIND: Kind = Kind::$value;

            fn encode_body(&self, out: &mut BytesMut) {
                append(&failure_wire(&self.0), out);
            }

            fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
                failure(parse(body)?).map($value)
            }
        }
    };
}

failure_message!(Closing);
failure_message!(ReadFailed);
