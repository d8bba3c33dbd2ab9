//! Why an engine could not do what it was asked.

use snowskin_device::DeviceError;
use snowskin_types::error::Failure;
use std::time::Duration;

/// Why an engine could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// It was not initialised, or was closed.
    #[error("the engine is not initialised, or closed")]
    NotOpen,
    /// It is already initialised.
    #[error("the engine is already initialised, as {session}")]
    AlreadyOpen {
        /// Its name.
        session: String,
    },
    /// It belongs to the process that this one was forked from.
    #[error("the engine belongs to process {owner}, which this one was forked from")]
    Forked {
        /// That process.
        owner: u32,
    },
    /// A setting is not usable.
    #[error("{setting} {value:?}: {reason}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// No port to listen at.
    #[error("no port of {first}..={last} could be opened: {reason}")]
    NoPort {
        /// First of the range.
        first: u16,
        /// Last of it.
        last: u16,
        /// Why the last one could not.
        reason: String,
    },
    /// The system refused.
    #[error("cannot {step}: {reason}")]
    System {
        /// What was tried, a verb.
        step: &'static str,
        /// The system's reason.
        reason: String,
    },
    /// Local memory cannot be registered or used.
    #[error(transparent)]
    Memory(#[from] DeviceError),
    /// The address is not of a region that this engine has registered.
    #[error("no region at {address:#x} is registered with this engine")]
    NotRegistered {
        /// The address.
        address: usize,
    },
    /// A request cannot be carried out as it is.
    #[error("request {index} ({len} bytes, local {local:#x}, remote {remote:#x}) {reason}")]
    Request {
        /// Its place in the list.
        index: usize,
        /// Address here.
        local: usize,
        /// Address at the peer.
        remote: u64,
        /// Bytes.
        len: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The name of the peer cannot be used, or is not known to the name service.
    #[error("peer {peer}: {reason}")]
    Unresolved {
        /// The peer.
        peer: String,
        /// What is wrong.
        reason: String,
    },
    /// Nothing listens there, or the connection broke.
    #[error("peer {peer}: {reason}")]
    Unreachable {
        /// The peer.
        peer: String,
        /// What happened.
        reason: String,
    },
    /// What listens there is not an engine, or will not talk to this one.
    #[error("peer {peer}: {reason}")]
    Refused {
        /// The peer.
        peer: String,
        /// Its words, or what is wrong with them.
        reason: String,
    },
    /// The peer has not registered these bytes.
    #[error("peer {peer} has not registered the {len} bytes at {address:#x}")]
    Outside {
        /// The peer.
        peer: String,
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// The bytes could not be moved.
    #[error("peer {peer}: {failure}")]
    Transfer {
        /// The peer.
        peer: String,
        /// The reason.
        failure: Box<Failure>,
    },
    /// The time was over.
    #[error("peer {peer}: the time of {waited:?} was over")]
    TimedOut {
        /// The peer.
        peer: String,
        /// How long it was.
        waited: Duration,
    },
    /// Too much is under way.
    #[error("{max} batches are under way, which is the most")]
    TooMany {
        /// The bound.
        max: usize,
    },
    /// No such batch: never given, or its end was told already.
    #[error("batch {id} is not known")]
    UnknownBatch {
        /// The number given.
        id: u64,
    },
    /// A batch among those waited for did not succeed.
    #[error("batch {id} failed")]
    Batch {
        /// Its number.
        id: u64,
    },
}

impl EngineError {
    /// The engine's own code of it: -1 invalid argument or failed, -2 too many, -3 address not
    /// registered, -4 busy, -7 overlap, -101 unknown name, -102 not reachable, -104 handshake refused.
    pub fn number(&self) -> i32 {
        match self {
            EngineError::Memory(DeviceError::Overlap { .. }) => -7,
            EngineError::Memory(DeviceError::Busy { .. }) => -4,
            EngineError::Memory(DeviceError::Unknown { .. })
            | EngineError::NotRegistered { .. } => -3,
            EngineError::TooMany { .. } | EngineError::Memory(DeviceError::TooMany { .. }) => -2,
            EngineError::Unresolved { .. } => -101,
            EngineError::Unreachable { .. } | EngineError::TimedOut { .. } => -102,
            EngineError::Refused { .. } => -104,
            _ => -1,
        }
    }

    /// Whether it is that the time was over.
    pub fn is_timeout(&self) -> bool {
        matches!(self, EngineError::TimedOut { .. })
    }
}
