//! Frames: a fixed header and a body, on every connection alike.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..4 | length | bytes of the body, little-endian |
//! | 4..6 | kind | [`Kind`] |
//! | 6..8 | flags | 0 for now; receivers ignore bits they do not know |
//! | 8..16 | id | chosen by the requester, echoed in what answers |
//!
//! The numbers of [`Kind`] are frozen: add, never change or reuse.

use crate::error::{EncodeError, FrameError};
use crate::message::Message;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use snowskin_types::limits::{FRAME_BYTES_MAX, HELLO_BYTES_MAX};

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 16;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// What a frame's body is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind { $($(#[$doc])* $name),* }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];
            /// The number on the wire.
            pub const fn number(self) -> u16 { match self { $(Kind::$name => $number),* } }
            /// Finds a kind by its number.
            pub const fn from_number(number: u16) -> Option<Kind> {
                match number { $($number => Some(Kind::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// First frame of the side that connected.
    Hello = 1;
    /// First frame of the side that accepted.
    Welcome = 2;
    /// The connection is refused or ended; the body is a failure.
    Closing = 3;
    /// Asks for a pong with the same id; no body.
    Ping = 4;
    /// Answers a ping; no body.
    Pong = 5;
    /// A client's call to the master.
    Request = 16;
    /// The answer to a call.
    Reply = 17;
    /// A message of a node to the master.
    FromNode = 32;
    /// A message of the master to a node.
    ToNode = 33;
    /// Announces a write; its bytes follow in payload frames of the same id.
    Write = 48;
    /// The result of a write.
    WriteDone = 49;
    /// Asks for bytes.
    Read = 50;
    /// Announces the bytes of a read; they follow in payload frames of the same id.
    ReadHead = 51;
    /// The read fails, before or amid its bytes; the body is a failure.
    ReadFailed = 52;
    /// Raw bytes of an object, in order.
    Payload = 53;
    /// The sender of payload gives up: no more payload of this id follows; no body.
    PayloadEnd = 54;
    /// The request is alive and waits (for space, or to be published); no body.
    Waiting = 55;
    /// Asks for bytes of a registered region.
    RangeRead = 56;
    /// Announces bytes for a registered region; they follow in runs, each behind its sums.
    RangeWrite = 57;
    /// The sums of the run of a range whose payload comes next, with the id of its request.
    RangeSums = 58;
    /// Asks a transfer engine for its regions; no body.
    EngineDescribe = 64;
    /// The regions of a transfer engine.
    EngineDescription = 65;
    /// A word to the user of a transfer engine.
    EngineNotify = 66;
    /// Whether it was taken.
    EngineNotified = 67;
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub len: u32,
    /// What the body is.
    pub kind: Kind,
    /// See the table of the module.
    pub flags: u16,
    /// Joins requests and answers.
    pub id: u64,
}

impl Header {
    /// A header without flags.
    pub const fn new(kind: Kind, len: u32, id: u64) -> Self {
        Header {
            len,
            kind,
            flags: 0,
            id,
        }
    }

    /// As it stands on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut out = &mut bytes[..];
        out.put_u32_le(self.len);
        out.put_u16_le(self.kind.number());
        out.put_u16_le(self.flags);
        out.put_u64_le(self.id);
        bytes
    }

    /// Reads a header; `max` bounds the body.
    ///
    /// # Errors
    /// When the kind is unknown or the body too large.
    pub fn parse(bytes: &[u8; HEADER_BYTES], max: usize) -> Result<Self, FrameError> {
        let mut bytes = &bytes[..];
        let len = bytes.get_u32_le();
        let kind = bytes.get_u16_le();
        let flags = bytes.get_u16_le();
        let id = bytes.get_u64_le();
        let kind = Kind::from_number(kind).ok_or(FrameError::Kind { kind })?;
        if len as usize > max {
            return Err(FrameError::TooLarge {
                len: u64::from(len),
                max,
            });
        }
        Ok(Header {
            len,
            kind,
            flags,
            id,
        })
    }
}

/// A whole frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the body is.
    pub kind: Kind,
    /// See the table of the module.
    pub flags: u16,
    /// Joins requests and answers.
    pub id: u64,
    /// The body.
    pub body: Bytes,
}

/// How large the bodies of the next frames may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The peer is a stranger: one hello or welcome, and small.
    Hello,
    /// The peer has been let in.
    Open,
}

impl Phase {
    /// Largest body.
    pub const fn body_max(self) -> usize {
        match self {
            Phase::Hello => HELLO_BYTES_MAX,
            Phase::Open => FRAME_BYTES_MAX,
        }
    }

    /// Reads a header that may stand here.
    ///
    /// # Errors
    /// As [`Header::parse`], and when a stranger begins with anything but a greeting.
    pub fn parse(self, bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let header = Header::parse(bytes, self.body_max())?;
        let greets = matches!(header.kind, Kind::Hello | Kind::Welcome | Kind::Closing);
        if self == Phase::Hello && !greets {
            return Err(FrameError::NotHello {
                kind: header.kind.number(),
            });
        }
        Ok(header)
    }
}

/// Appends a frame with a message.
///
/// # Errors
/// When the message is larger than a frame may be; nothing is appended then.
pub fn put<M: Message>(out: &mut BytesMut, id: u64, message: &M) -> Result<(), EncodeError> {
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    message.encode_body(out);
    let len = out.len() - start - HEADER_BYTES;
    match u32::try_from(len).ok().filter(|_| len <= FRAME_BYTES_MAX) {
        Some(len) => {
            let header = Header::new(M::KIND, len, id).to_bytes();
            out[start..start + HEADER_BYTES].copy_from_slice(&header);
            Ok(())
        }
        None => {
            out.truncate(start);
            Err(EncodeError::TooLarge {
                len,
                max: FRAME_BYTES_MAX,
            })
        }
    }
}

/// Appends a frame of a kind that has no body.
pub fn put_empty(out: &mut BytesMut, id: u64, kind: Kind) {
    out.put_slice(&Header::new(kind, 0, id).to_bytes());
}

/// Cuts frames from bytes as they arrive. Keeps at most one unfinished frame.
#[derive(Debug)]
pub struct Decoder {
    phase: Phase,
    header: Option<Header>,
}

impl Decoder {
    /// For a connection on which nothing has been read.
    pub fn new() -> Self {
        Decoder {
            phase: Phase::Hello,
            header: None,
        }
    }

    /// Lets the peer in: larger frames and all kinds are taken from now on.
    pub fn open(&mut self) {
        self.phase = Phase::Open;
    }

    /// Takes the next whole frame from the front of `input`; `None` until more bytes have come.
    ///
    /// Reserves no more than the announced frame, and that only up to what the phase allows.
    ///
    /// # Errors
    /// When the bytes are not a frame; the connection is to be closed.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = input.first_chunk::<HEADER_BYTES>() else {
                    return Ok(None);
                };
                let header = self.phase.parse(bytes)?;
                input.advance(HEADER_BYTES);
                self.header = Some(header);
                header
            }
        };
        let len = header.len as usize;
        if input.len() < len {
            return Ok(None);
        }
        self.header = None;
        let body = input.split_to(len).freeze();
        Ok(Some(Frame {
            kind: header.kind,
            flags: header.flags,
            id: header.id,
            body,
        }))
    }

    /// Bytes that are still missing from the frame that has begun, for sizing the next read.
    pub fn missing(&self, input: &BytesMut) -> usize {
        match self.header {
            Some(header) => (header.len as usize).saturating_sub(input.len()),
            None => HEADER_BYTES.saturating_sub(input.len()),
        }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}
