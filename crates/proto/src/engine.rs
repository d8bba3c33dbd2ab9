//! Messages between transfer engines.

use crate::error::DecodeError;
use crate::frame::Kind;
use crate::message::Message;
use crate::shared::{append, failure, failure_wire, parse, same_count, text, unknown};
use crate::wire;
use bytes::{Bytes, BytesMut};
use snowskin_types::error::Failure;
use snowskin_types::id::Epoch;

/// Most regions of one engine.
pub const ENGINE_REGIONS_MAX: usize = 65_536;
/// Longest name of a notification, in bytes.
pub const NOTIFY_NAME_BYTES_MAX: usize = 64 * 1024;
/// Longest text of a notification, in bytes.
pub const NOTIFY_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// What peers may do with a region of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineAccess {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Read and write it.
    Both,
}

/// A region of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineRegion {
    /// Address of its first byte in the engine's process.
    pub base: u64,
    /// Bytes; at least one, and the end is an address.
    pub len: u64,
    /// Its number, to name it in range requests.
    pub region: u64,
    /// What may be done with it.
    pub access: EngineAccess,
}

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDescription {
    /// Process life, to name it in range requests.
    pub epoch: Epoch,
    /// Port of its data server, on the host of its session port.
    pub data_port: u16,
    /// Rises whenever the regions change.
    pub generation: u64,
    /// The regions; at most [`ENGINE_REGIONS_MAX`].
    pub regions: Vec<EngineRegion>,
}

/// A word to a peer's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineNotify {
    /// At most [`NOTIFY_NAME_BYTES_MAX`].
    pub name: String,
    /// At most [`NOTIFY_MESSAGE_BYTES_MAX`].
    pub message: String,
}

/// Whether a notification was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineNotified(pub Result<(), Failure>);

impl Message for EngineDescription {
    const KIND: Kind = Kind::EngineDescription;

    fn encode_body(&self, out: &mut BytesMut) {
        let access = |region: &EngineRegion| match region.access {
            EngineAccess::Read => 1,
            EngineAccess::Write => 2,
            EngineAccess::Both => 3,
        };
        let message = wire::EngineDescription {
            epoch: self.epoch.0,
            data_port: self.data_port.into(),
            generation: self.generation,
            bases: self.regions.iter().map(|region| region.base).collect(),
            lens: self.regions.iter().map(|region| region.len).collect(),
            regions: self.regions.iter().map(|region| region.region).collect(),
            access: self.regions.iter().map(access).collect(),
        };
        append(&message, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        // The lists are of fixed width, so they unfold to no more than came.
        let d: wire::EngineDescription = parse(body)?;
        let count = d.bases.len();
        if count > ENGINE_REGIONS_MAX {
            return Err(DecodeError::TooMany {
                field: "regions",
                given: count,
                max: ENGINE_REGIONS_MAX,
            });
        }
        same_count("lengths of regions", d.lens.len(), count)?;
        same_count("numbers of regions", d.regions.len(), count)?;
        same_count("access rights of regions", d.access.len(), count)?;
        let rows = d.bases.iter().zip(&d.lens).zip(&d.regions).zip(&d.access);
        let regions = rows.map(|(((&base, &len), &region), &access)| {
            if len == 0 || base.checked_add(len).is_none() {
                return Err(DecodeError::Range {
                    field: "region",
                    value: format!("{base}+{len}"),
                    allowed: "at least one byte, with an end in 64 bits",
                });
            }
            let access = match access {
                1 => EngineAccess::Read,
                2 => EngineAccess::Write,
                3 => EngineAccess::Both,
                other => return unknown("access", other),
            };
            Ok(EngineRegion {
                base,
                len,
                region,
                access,
            })
        });
        Ok(EngineDescription {
            epoch: Epoch(d.epoch),
            data_port: u16::try_from(d.data_port)
                .ok()
                .filter(|port| *port > 0)
                .ok_or(DecodeError::Unknown {
                    field: "data port",
                    value: d.data_port.into(),
                })?,
            generation: d.generation,
            regions: regions.collect::<Result<_, _>>()?,
        })
    }
}

impl Message for EngineNotify {
    const KIND: Kind = Kind::EngineNotify;

    fn encode_body(&self, out: &mut BytesMut) {
        let message = wire::EngineNotify {
            name: self.name.clone(),
            message: self.message.clone(),
        };
        append(&message, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let n: wire::EngineNotify = parse(body)?;
        text("name", &n.name, NOTIFY_NAME_BYTES_MAX)?;
        text("message", &n.message, NOTIFY_MESSAGE_BYTES_MAX)?;
        Ok(EngineNotify {
            name: n.name,
            message: n.message,
        })
    }
}

impl Message for EngineNotified {
    const KIND: Kind = Kind::EngineNotified;

    fn encode_body(&self, out: &mut BytesMut) {
        let failure = self.0.as_ref().err().map(failure_wire);
        append(&wire::EngineNotified { failure }, out);
    }

    fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
        let n: wire::EngineNotified = parse(body)?;
        Ok(EngineNotified(match n.failure {
            None => Ok(()),
            Some(f) => Err(failure(f)?),
        }))
    }
}
