//! Values that travel as the body of a frame.

use crate::error::DecodeError;
use crate::frame::{Frame, Kind};
use bytes::{Bytes, BytesMut};
use snowskin_types::error::Failure;

/// A value with a form on the wire. Decoding checks everything that can be checked without knowing
/// the state of the receiver.
pub trait Message: Sized {
    /// Kind of the frame that carries it.
    const KIND: Kind;

    /// Appends the body.
    fn encode_body(&self, out: &mut BytesMut);

    /// Reads a body.
    ///
    /// # Errors
    /// When it is not such a message, or a value in it is not allowed.
    fn decode_body(body: Bytes) -> Result<Self, DecodeError>;

    /// Reads the body of a frame, if it is of the right kind.
    ///
    /// # Errors
    /// When it is of another kind, or as [`Message::decode_body`].
    fn from_frame(frame: Frame) -> Result<Self, DecodeError> {
        if frame.kind != Self::KIND {
            let value = u64::from(frame.kind.number());
            return Err(DecodeError::Unknown {
                field: "frame kind",
                value,
            });
        }
        Self::decode_body(frame.body)
    }
}

/// Makes a value a message that travels as the one choice in an envelope of the same name:
/// `envelope!(Value, field of the envelope, bounds, to the choice, from the choice)`.
macro_rules! envelope {
    ($value:ident, $field:ident, $bounds:expr, $to:expr, $from:expr) => {
        impl Message for $value {
            const KIND: Kind = Kind::$value;

            fn encode_body(&self, out: &mut BytesMut) {
                let $field = Some($to(self));
                append(&wire::$value { $field }, out);
            }

            fn decode_body(body: Bytes) -> Result<Self, DecodeError> {
                count::check(&body, $bounds)?;
                let envelope: wire::$value = parse(body)?;
                $from(require(envelope.$field, stringify!($field))?)
            }
        }
    };
}

pub(crate) use envelope;

/// Why a connection is refused or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing(pub Failure);

/// Why a read fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFailed(pub Failure);
