//! What is asked of an engine, and what it answers.

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// From the peer to here.
    Read,
    /// From here to the peer.
    Write,
}

/// A run of bytes here and the run of a peer that it is read from or written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Address in this process.
    pub local: usize,
    /// Address in the peer's process.
    pub remote: u64,
    /// Bytes; a request of none is done at once.
    pub len: u64,
}

/// A word to the user of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notify {
    /// What it is about; at most 64 KiB.
    pub name: String,
    /// The word; at most 1 MiB.
    pub message: String,
}

/// Names a batch of transfers that runs beside its caller. Never zero, below 2^63, and never given
/// twice by engines of one process, as far as chance allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// How far a batch is: all of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Some request has not ended.
    Running,
    /// All bytes have moved.
    Done,
    /// Some request failed; any byte of the targets may have changed.
    Failed,
    /// The time was over; as failed.
    TimedOut,
}
