//! Disks: one directory whose files are made, written, read, synced and deleted by whole blocks.
//!
//! Requests are handed in with the buffer they use and end by a call, on a thread of the disk, that gives
//! the buffer back. They are carried out in any order. [`pool`] is the implementation on threads with plain
//! system calls, which works everywhere.

pub mod pool;
mod root;

pub use root::{Direct, Entry, Kind, Root, Space};

use snowskin_memory::buffer::Buffer;
use std::io;

/// Unit of offsets and lengths, and alignment of buffers.
pub const BLOCK_BYTES: u64 = 4096;

/// What to do with one file of the directory.
#[derive(Debug)]
pub enum Action {
    /// Make it, with this many bytes allocated. It must not exist. When this ends well its existence is
    /// durable; when it fails it has been deleted again.
    Create {
        /// Length in bytes.
        bytes: u64,
    },
    /// Write all of a buffer. It outlives the process, not a loss of power.
    Write {
        /// Where, whole blocks.
        offset: u64,
        /// What, whole blocks, aligned.
        data: Buffer,
    },
    /// Fill all of a buffer. Fewer bytes are an error.
    Read {
        /// Where, whole blocks.
        offset: u64,
        /// Whole blocks, aligned.
        into: Buffer,
    },
    /// Make durable what was written and has ended.
    Sync,
    /// Delete it. When this ends well its absence is durable.
    Delete,
}

/// A request.
#[derive(Debug)]
pub struct Job {
    /// Name of the file: one component. Symbolic links are not followed.
    pub name: Box<str>,
    /// What to do.
    pub action: Action,
}

/// What the caller has to know of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// No space or quota is left.
    NoSpace,
    /// The file system or the file cannot be changed.
    ReadOnly,
    /// Anything else.
    Other,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {name:?}: {source}")]
pub struct DiskError {
    /// What was tried.
    pub verb: &'static str,
    /// Of which file.
    pub name: Box<str>,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// The class of the failure.
    pub fn trouble(&self) -> Trouble {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Trouble::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Trouble::ReadOnly
            }
            _ => Trouble::Other,
        }
    }
}

/// The end of a request.
#[derive(Debug)]
pub struct Ended {
    /// Whether it was done.
    pub result: Result<(), DiskError>,
    /// The buffer it came with.
    pub buffer: Option<Buffer>,
}

/// What is called at the end, on a thread of the disk: it must be short and must not wait.
pub type Then = Box<dyn FnOnce(Ended) + Send>;

/// A request that was not taken, because too many are under way. Nothing was done.
pub struct Refused {
    /// The request.
    pub job: Job,
    /// Its end, not called.
    pub then: Then,
}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused").field("job", &self.job).finish()
    }
}

/// One directory on a disk.
pub trait Disk: Send + Sync {
    /// Hands in a request. Does not wait.
    ///
    /// # Errors
    /// Gives the request back when as many as allowed are waiting.
    fn submit(&self, job: Job, then: Then) -> Result<(), Refused>;

    /// The directory itself: listing, space, whether I/O is direct.
    fn root(&self) -> &Root;

    /// Name of the implementation, as it is announced: `threads`.
    fn io(&self) -> &'static str;
}
