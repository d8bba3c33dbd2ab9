//! Attributes of an object as type, length, value. Types that are not known are skipped, so that
//! later ones can be added.

use super::FormatError;
use super::bytes::Reader;
use snowskin_types::object::Attributes;
use snowskin_types::time::Millis;

const PINS: u16 = 1;
const GROUP: u16 = 2;
const DATA_TYPE: u16 = 3;

const HARD: u8 = 1;
const SOFT: u8 = 2;

/// Longest group name that is written, in bytes; a longer one is left out (and the object is then
/// in no group after a restart).
pub const GROUP_BYTES_MAX: usize = 1024;

/// Appends the attributes that differ from the defaults.
pub fn encode(attributes: &Attributes, out: &mut Vec<u8>) {
    let mut put = |kind: u16, value: &[u8]| {
        let Ok(len) = u16::try_from(value.len()) else {
            return;
        };
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(value);
    };
    let hard = if attributes.hard_pin { HARD } else { 0 };
    let soft = attributes.soft_pin.map_or(0, |_| SOFT);
    if hard | soft != 0 {
        let mut value = vec![hard | soft];
        value.extend_from_slice(&attributes.soft_pin.unwrap_or_default().0.to_le_bytes());
        put(PINS, &value);
    }
    if let Some(group) = attributes.group.as_deref()
        && group.len() <= GROUP_BYTES_MAX
    {
        put(GROUP, group.as_bytes());
    }
    if attributes.data_type != 0 {
        put(DATA_TYPE, &attributes.data_type.to_le_bytes());
    }
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// When a length or a value does not fit.
pub fn decode(bytes: &[u8]) -> Result<Attributes, FormatError> {
    let mut attributes = Attributes::default();
    let mut reader = Reader::new(bytes);
    while !reader.rest().is_empty() {
        let kind = reader.u16()?;
        let len = reader.u16()?;
        let mut value = Reader::new(reader.take(usize::from(len))?);
        match kind {
            PINS => {
                let flags = value.u8()?;
                let left = value.u64()?;
                attributes.hard_pin = flags & HARD != 0;
                attributes.soft_pin = (flags & SOFT != 0).then_some(Millis(left));
            }
            GROUP => {
                let group = std::str::from_utf8(value.rest())
                    .map_err(|_| FormatError::Field("attributes"))?;
                attributes.group = Some(group.into());
            }
            DATA_TYPE => attributes.data_type = value.u32()?,
            _ => {}
        }
    }
    Ok(attributes)
}
