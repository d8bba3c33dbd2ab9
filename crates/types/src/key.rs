//! Names of objects: (tenant, key).

use crate::limits::{KEY_BYTES_MAX, TENANT_BYTES_MAX};
use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key has no bytes.
    #[error("the key is empty; allowed are 1 to {KEY_BYTES_MAX} bytes")]
    Empty,
    /// The key is longer than the limit.
    #[error("the key has {len} bytes; allowed are 1 to {KEY_BYTES_MAX}")]
    TooLong {
        /// Bytes it has.
        len: usize,
    },
    /// The tenant's name is not usable.
    #[error(
        "the tenant name {name:?} is not allowed: 1 to {TENANT_BYTES_MAX} bytes, no leading underscore, no control characters"
    )]
    Tenant {
        /// The name as given.
        name: String,
    },
}

/// An object's name within its tenant: 1 to 65,535 bytes of any value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// Checks and takes the bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyError> {
        Self::check(bytes)?;
        Ok(Key(bytes.into()))
    }

    /// Checks bytes without taking them.
    pub fn check(bytes: &[u8]) -> Result<(), KeyError> {
        match bytes.len() {
            0 => Err(KeyError::Empty),
            len if len > KEY_BYTES_MAX => Err(KeyError::TooLong { len }),
            _ => Ok(()),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", escape(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", escape(&self.0))
    }
}

/// Shows key bytes in print: valid UTF-8 without control characters stands as it is, everything
/// else is escaped, and a long key is cut.
pub fn escape(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 256;
    let cut = &bytes[..bytes.len().min(SHOWN_MAX)];
    let mut out = String::with_capacity(cut.len());
    for chunk in cut.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    if bytes.len() > SHOWN_MAX {
        out.push_str(&format!("...({} bytes)", bytes.len()));
    }
    out
}

/// A namespace of keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// The tenant of callers that name none.
    pub const DEFAULT: &'static str = "default";

    /// Checks and takes the name.
    pub fn new(name: &str) -> Result<Self, KeyError> {
        let bad = name.is_empty()
            || name.len() > TENANT_BYTES_MAX
            || name.starts_with('_')
            || name.chars().any(char::is_control);
        if bad {
            return Err(KeyError::Tenant {
                name: name.to_owned(),
            });
        }
        Ok(Tenant(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Tenant(Self::DEFAULT.into())
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The full name of an object. With a [`Version`](crate::Version) it identifies bytes for ever.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace.
    pub tenant: Tenant,
    /// Name within it.
    pub key: Key,
}

impl ObjectName {
    /// Puts the two together.
    pub fn new(tenant: Tenant, key: Key) -> Self {
        ObjectName { tenant, key }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tenant, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_refused_when_empty_or_over_the_limit() {
        assert_eq!(Key::new(b""), Err(KeyError::Empty));
        assert!(Key::new(&vec![7; KEY_BYTES_MAX]).is_ok());
        assert_eq!(
            Key::new(&vec![7; KEY_BYTES_MAX + 1]),
            Err(KeyError::TooLong {
                len: KEY_BYTES_MAX + 1
            })
        );
    }

    #[test]
    fn odd_bytes_are_escaped_in_print() {
        assert_eq!(escape(b"a\n\xff\\"), "a\\n\\xff\\\\");
    }

    #[test]
    fn tenant_names_with_control_characters_or_a_leading_underscore_are_refused() {
        assert!(Tenant::new("a-b").is_ok());
        for bad in ["", "_x", "a\0b"] {
            assert!(Tenant::new(bad).is_err(), "{bad:?}");
        }
    }
}
