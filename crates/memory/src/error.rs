//! Errors of mappings and of bounded access.

use std::io;

/// Why memory could not be mapped, populated, or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A mapping of no bytes was asked for.
    #[error("a mapping needs at least one byte")]
    Empty,
    /// More than the address space can hold.
    #[error("{wanted} bytes are more than this machine can address")]
    TooLarge {
        /// Length asked for.
        wanted: u64,
    },
    /// Alignments are powers of two.
    #[error("an alignment of {align} is not a power of two")]
    BadAlignment {
        /// Alignment asked for.
        align: usize,
    },
    /// The range is not inside the memory.
    #[error("offset {offset} + length {len} is outside of {available} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes there are.
        available: u64,
    },
    /// Bytes cannot be received twice into the same place.
    #[error("offset {offset} + length {len} overlaps another extent of the same list")]
    Overlap {
        /// First byte of the second extent.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// Caller memory that was named is not mapped any more, or lost the rights it had.
    #[error("{len} bytes at {address:#x} are not mapped any more (first at {at:#x})")]
    Gone {
        /// First byte of the range.
        address: usize,
        /// Its length.
        len: u64,
        /// The first byte, or page, that is not there.
        at: usize,
    },
    /// Bytes cannot be received into memory that can only be read.
    #[error("the memory is read-only; bytes can be sent from it, but none be received into it")]
    ReadOnly,
    /// An atomic word must start at a multiple of eight.
    #[error("offset {offset} is not a multiple of 8")]
    Unaligned {
        /// Offset asked for.
        offset: u64,
    },
    /// The file behind a foreign segment can shrink, so reading it could kill this process.
    #[error("the shared file is not sealed against shrinking")]
    NotSealed,
    /// The file behind a foreign segment is shorter than announced.
    #[error("the shared file has {actual} bytes, announced were {announced}")]
    Short {
        /// Length of the file.
        actual: u64,
        /// Length the owner announced.
        announced: u64,
    },
    /// The operating system refused.
    #[error("cannot {step} {len} bytes: {source}")]
    System {
        /// What was tried, a verb.
        step: &'static str,
        /// Bytes concerned.
        len: u64,
        /// The system's reason.
        source: io::Error,
    },
}

impl MemoryError {
    pub(crate) fn system(step: &'static str, len: u64) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            step,
            len,
            source: errno.into(),
        }
    }
}
