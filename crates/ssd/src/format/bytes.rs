//! Reading fixed-width little-endian numbers from bytes that may be anything.

use super::FormatError;

/// A position in bytes; never reads past their end.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// At the start of the bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (now, later) = self.0.split_at_checked(len).ok_or(FormatError::Short)?;
        self.0 = later;
        Ok(now)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (now, later) = self.0.split_first_chunk().ok_or(FormatError::Short)?;
        self.0 = later;
        Ok(*now)
    }

    /// # Errors
    /// When nothing is left.
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        self.array().map(u8::from_le_bytes)
    }

    /// # Errors
    /// When too little is left.
    pub fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    /// # Errors
    /// When too little is left.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    /// # Errors
    /// When too little is left.
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    /// # Errors
    /// When too little is left.
    pub fn id(&mut self) -> Result<[u8; 16], FormatError> {
        self.array()
    }
}
