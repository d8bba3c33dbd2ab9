//! Lists of retired versions: the payload of a tombstone record.

use super::FormatError;
use super::bytes::Reader;
use snowskin_types::key::{Key, ObjectName, Tenant};
use snowskin_types::version::Version;

/// Longest list, in bytes.
pub const LIST_BYTES_MAX: u64 = 256 << 10;

/// One incarnation of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// Tenant and key.
    pub name: ObjectName,
    /// Which version of it.
    pub version: Version,
}

/// Bytes that one entry takes.
pub fn entry_bytes(name: &ObjectName) -> u64 {
    (12 + name.tenant.as_str().len() + name.key.as_bytes().len()) as u64
}

/// Appends one entry: version, length of tenant and key, tenant, key.
pub fn encode(entry: &Incarnation, out: &mut Vec<u8>) {
    let (tenant, key) = (
        entry.name.tenant.as_str().as_bytes(),
        entry.name.key.as_bytes(),
    );
    out.extend_from_slice(&entry.version.raw().to_le_bytes());
    for len in [tenant.len(), key.len()] {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_le_bytes());
    }
    out.extend_from_slice(tenant);
    out.extend_from_slice(key);
}

/// Reads a whole list.
///
/// # Errors
/// When it does not consist of entries.
pub fn decode(bytes: &[u8]) -> Result<Vec<Incarnation>, FormatError> {
    let mut reader = Reader::new(bytes);
    let mut list = Vec::new();
    while !reader.rest().is_empty() {
        let version = Version::from_raw(reader.u64()?);
        let (tenant, key) = (reader.u16()?, reader.u16()?);
        let tenant = std::str::from_utf8(reader.take(usize::from(tenant))?)
            .ok()
            .and_then(|text| Tenant::new(text).ok())
            .ok_or(FormatError::Field("tenant"))?;
        let key =
            Key::new(reader.take(usize::from(key))?).map_err(|_| FormatError::Field("key"))?;
        list.push(Incarnation {
            name: ObjectName::new(tenant, key),
            version,
        });
    }
    Ok(list)
}
