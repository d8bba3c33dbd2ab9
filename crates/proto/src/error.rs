//! Why bytes were not taken, or a message not sent.

use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::key::KeyError;

/// Why a body is not the message that it should be. The frame around it was sound, so the request
/// is answered with [`DecodeError::failure`] and the connection goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not protobuf, or not of these types.
    #[error("the message cannot be parsed: {reason}")]
    Malformed {
        /// The parser's words.
        reason: String,
    },
    /// A field that must be there is not.
    #[error("the message lacks {field}")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A kind, outcome or state that this version does not know.
    #[error("{field} {value} is not known to this version")]
    Unknown {
        /// The field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
    /// Two parts that belong together differ in number.
    #[error("{field}: {given} given, {wanted} wanted")]
    Count {
        /// The part.
        field: &'static str,
        /// How many there are.
        given: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// More items, or longer ones, than are allowed.
    #[error("{field}: {given} given, at most {max} are allowed")]
    TooMany {
        /// The part.
        field: &'static str,
        /// How many there are.
        given: usize,
        /// How many are allowed.
        max: usize,
    },
    /// A number outside its range.
    #[error("{field} {value} is not allowed: {allowed}")]
    Range {
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A key or tenant that is not allowed.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl DecodeError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            DecodeError::Key(KeyError::TooLong { .. }) => Code::InvalidKey,
            _ => Code::InvalidParams,
        }
    }

    /// As the answer to the sender.
    pub fn failure(&self, stage: Stage) -> Failure {
        Failure::new(self.code(), stage, self.to_string())
    }
}

/// Why a message cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// It is larger than a frame may be.
    #[error("the message has {len} bytes; a frame holds at most {max}: send fewer items at once")]
    TooLarge {
        /// Bytes it has.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
}

impl EncodeError {
    /// As the result of the caller's call.
    pub fn failure(&self, stage: Stage) -> Failure {
        Failure::new(Code::InvalidParams, stage, self.to_string())
    }
}

/// Why a stream of bytes is not a sequence of frames. Nothing after it can be trusted: the connection is
/// closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame announces more bytes than are allowed at this point.
    #[error("a frame announces {len} bytes; at most {max} are allowed here")]
    TooLarge {
        /// Bytes announced.
        len: u64,
        /// Bytes allowed.
        max: usize,
    },
    /// A frame of a kind that this version does not know.
    #[error("frame kind {kind} is not known")]
    Kind {
        /// The number.
        kind: u16,
    },
    /// The first frame is not a hello.
    #[error("the first frame is of kind {kind}, not a hello")]
    NotHello {
        /// The number.
        kind: u16,
    },
}
