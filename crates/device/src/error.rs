//! Why memory named by address could not be registered or used.

use snowskin_types::{Code, Failure, Stage};

/// Why memory named by address could not be registered or used. All lengths are bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The null address.
    #[error("the address is null")]
    Null,
    /// A region of no bytes.
    #[error("the region at {address:#x} has no bytes; at least one is needed")]
    Empty {
        /// Address given.
        address: usize,
    },
    /// The range passes the end of the address space.
    #[error("{len} bytes at {address:#x} pass the end of the address space")]
    Wraps {
        /// Address given.
        address: usize,
        /// Length given.
        len: u64,
    },
    /// The range has bytes in common with a registered one, or with another one of the same list.
    #[error(
        "{len} bytes at {address:#x} overlap the region of {other_len} bytes at {other:#x}; unregister that one first"
    )]
    Overlap {
        /// Address given.
        address: usize,
        /// Length given.
        len: u64,
        /// Base of the other region.
        other: usize,
        /// Length of the other region.
        other_len: u64,
    },
    /// No region has this base.
    #[error("no registered region begins at {address:#x}")]
    Unknown {
        /// Address given.
        address: usize,
    },
    /// Neither memory of this process nor of a device.
    #[error(
        "{len} bytes at {address:#x} are not mapped in this process (first at {at:#x}) and belong to no device with a loaded driver"
    )]
    NotMapped {
        /// Address given.
        address: usize,
        /// Length given.
        len: u64,
        /// The first byte, or page, that is not there.
        at: usize,
    },
    /// The memory cannot be written, so nothing can be received into it.
    #[error(
        "{len} bytes at {address:#x} are read-only (first at {at:#x}); they can be sent, but nothing can be received into them"
    )]
    ReadOnly {
        /// Address given.
        address: usize,
        /// Length given.
        len: u64,
        /// The first byte that cannot be written.
        at: usize,
    },
    /// The range lies partly on a device, or on two of them.
    #[error("{len} bytes at {address:#x} are not all on one device")]
    Mixed {
        /// Address given.
        address: usize,
        /// Length given.
        len: u64,
    },
    /// Strict registries take registered memory only.
    #[error("{len} bytes at {address:#x} are not registered, which strict buffers require")]
    Unregistered {
        /// First address that is not registered.
        address: usize,
        /// Bytes from there on that are not registered.
        len: u64,
    },
    /// Operations still use the region, which stays registered.
    #[error(
        "the region at {address:#x} is still in use by {users} operations; it stays registered"
    )]
    Busy {
        /// Base of the region.
        address: usize,
        /// Operations, at least.
        users: usize,
    },
    /// The table is full.
    #[error("{max} regions are registered, which is the most; register fewer and larger ones")]
    TooMany {
        /// Most regions.
        max: usize,
    },
    /// One object needs more staging than there can ever be.
    #[error(
        "{wanted} bytes at once must be staged, at most {max} can be; use smaller objects or a larger bound"
    )]
    TooLarge {
        /// Bytes to stage.
        wanted: u64,
        /// The bound.
        max: u64,
    },
    /// Other operations hold the staging memory.
    #[error("{wanted} bytes of staging memory are not free: {used} of {max} are in use")]
    StagingFull {
        /// Bytes to stage.
        wanted: u64,
        /// Bytes in use.
        used: u64,
        /// The bound.
        max: u64,
    },
    /// Fewer bytes were given room than shall be delivered.
    #[error("{wanted} bytes shall be delivered, there is room for {room}")]
    NoRoom {
        /// Bytes to deliver.
        wanted: u64,
        /// Bytes there is room for.
        room: u64,
    },
    /// A vendor's driver refused.
    #[error("the {driver} driver cannot {step} {len} bytes at {address:#x}: its code {number}")]
    Driver {
        /// Family of the driver.
        driver: &'static str,
        /// What was tried, a verb.
        step: &'static str,
        /// Device address.
        address: usize,
        /// Bytes concerned.
        len: u64,
        /// The driver's code.
        number: i64,
    },
    /// A driver library that was asked for cannot be used.
    #[error("the driver library {path} cannot be used: {reason}")]
    Library {
        /// Library.
        path: String,
        /// Reason.
        reason: String,
    },
    /// The list of driver libraries cannot be read.
    #[error(
        "{text:?} is not a list of driver libraries; allowed is [cuda:|ascend:]PATH, separated by colons"
    )]
    Libraries {
        /// Text given.
        text: String,
    },
    /// A switch is neither on nor off.
    #[error("{name} is {text:?}; allowed are 0, 1, false, true, no, yes, off, on")]
    Switch {
        /// Variable.
        name: &'static str,
        /// Text given.
        text: String,
    },
    /// The operating system refused.
    #[error("cannot {step}: {reason}")]
    System {
        /// What was tried, a verb.
        step: &'static str,
        /// The system's reason.
        reason: String,
    },
}

impl DeviceError {
    /// The stable code: -600 for what the caller named, -800 for what a driver refused, -1010 for what
    /// may succeed later.
    pub fn code(&self) -> Code {
        match self {
            Self::Driver { .. } | Self::System { .. } => Code::TransferFail,
            Self::Busy { .. } | Self::StagingFull { .. } => Code::UnavailableInStatus,
            _ => Code::InvalidParams,
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Failure::new(error.code(), Stage::Session, error.to_string())
    }
}
