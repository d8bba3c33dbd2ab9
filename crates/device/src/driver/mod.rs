//! The vendors' drivers: who owns an address, and copies between devices and the host.
//!
//! A driver is taken from those that the process has loaded already: only the engine's own driver can
//! have handed out a device address, and a driver that nobody uses is neither loaded nor initialised.
//! Libraries named by path (of tests) are loaded.

mod ascend;
mod cuda;
mod library;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::DeviceError;
use library::Library;

/// A vendor's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// The driver interface of NVIDIA devices, `libcuda.so.1`.
    Cuda,
    /// The runtime interface of Ascend devices, `libascendcl.so`.
    Ascend,
}

impl Family {
    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Ascend => "ascend",
        }
    }

    fn library(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Ascend => "libascendcl.so",
        }
    }

    fn driver(self, library: Library) -> Result<Arc<dyn Driver>, DeviceError> {
        Ok(match self {
            Self::Cuda => Arc::new(cuda::Cuda::new(library)?),
            Self::Ascend => Arc::new(ascend::Ascend::new(library)?),
        })
    }
}

/// What a driver says of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Memory of the device with this number, out of the processor's reach.
    Device(i32),
    /// Anything else; memory that is managed or pinned for the driver belongs to the host.
    Other,
    /// This version of the driver has no answer.
    Unsaid,
}

/// One loaded driver. Its calls run on the caller's thread and leave the thread's current device as it
/// was; a copy has ended when it returns.
pub(crate) trait Driver: Send + Sync {
    fn family(&self) -> Family;
    /// Who owns an address.
    fn owner(&self, address: usize) -> Owner;
    /// Finds out by a copy of one byte whether the current device owns an address that the processor
    /// cannot reach.
    fn probe(&self, address: usize) -> Option<i32>;
    /// Copies from a device.
    fn fetch(&self, number: i32, parts: &mut [Fetch<'_>]) -> Result<(), DeviceError>;
    /// Copies to a device.
    fn store(&self, number: i32, parts: &[Store<'_>]) -> Result<(), DeviceError>;
}

/// One copy from a device.
pub(crate) struct Fetch<'b> {
    pub(crate) address: usize,
    pub(crate) into: &'b mut [u8],
}

/// One copy to a device.
pub(crate) struct Store<'b> {
    pub(crate) address: usize,
    pub(crate) from: &'b [u8],
}

/// One device of one driver.
#[derive(Clone)]
pub(crate) struct Device {
    driver: Arc<dyn Driver>,
    number: i32,
}

impl Device {
    pub(crate) fn fetch(&self, parts: &mut [Fetch<'_>]) -> Result<(), DeviceError> {
        self.driver.fetch(self.number, parts)
    }

    pub(crate) fn store(&self, parts: &[Store<'_>]) -> Result<(), DeviceError> {
        self.driver.store(self.number, parts)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.driver, &other.driver)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.driver.family().name(), self.number)
    }
}

/// Where drivers come from. Clones share what was found.
#[derive(Clone)]
pub struct Drivers {
    state: Arc<Mutex<State>>,
}

struct State {
    loaded: Vec<Arc<dyn Driver>>,
    /// Families that the process may load later.
    awaited: Vec<Family>,
}

impl Drivers {
    /// The drivers of the system, each from the moment on that the process has loaded it.
    pub fn system() -> Self {
        Self::new(Vec::new(), vec![Family::Cuda, Family::Ascend])
    }

    /// No drivers: all memory is the host's.
    pub fn none() -> Self {
        Self::new(Vec::new(), Vec::new())
    }

    /// Loads these libraries, and takes no others.
    ///
    /// # Errors
    /// When a library cannot be loaded, or lacks a function.
    pub fn from_paths<P: AsRef<Path>>(
        libraries: impl IntoIterator<Item = (Family, P)>,
    ) -> Result<Self, DeviceError> {
        let load = |(family, path): (Family, P)| family.driver(Library::open(path.as_ref())?);
        let loaded: Result<_, _> = libraries.into_iter().map(load).collect();
        Ok(Self::new(loaded?, Vec::new()))
    }

    /// As [`Drivers::from_paths`], from the text of `SNOWSKIN_DRIVER_LIBRARIES`: paths separated by
    /// colons, each with `cuda:` or `ascend:` in front. Without it, a file with `ascend` in its name
    /// is of that family and any other is of the first.
    ///
    /// # Errors
    /// As there, and when the text is not such a list.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let bad = || DeviceError::Libraries { text: text.into() };
        let mut libraries = Vec::new();
        let mut family = None;
        for word in text.split(':').filter(|word| !word.is_empty()) {
            let named = [Family::Cuda, Family::Ascend]
                .into_iter()
                .find(|family| family.name() == word);
            match (named, family) {
                (Some(named), None) => family = Some(named),
                (Some(_), Some(_)) => return Err(bad()),
                (None, _) => {
                    let path = PathBuf::from(word);
                    let file = path.file_name().unwrap_or_default().to_string_lossy();
                    let guess = if file.contains("ascend") {
                        Family::Ascend
                    } else {
                        Family::Cuda
                    };
                    libraries.push((family.take().unwrap_or(guess), path));
                }
            }
        }
        match family {
            None => Self::from_paths(libraries),
            Some(_) => Err(bad()),
        }
    }

    fn new(loaded: Vec<Arc<dyn Driver>>, awaited: Vec<Family>) -> Self {
        let state = State { loaded, awaited };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The drivers that are there now.
    pub(crate) fn loaded(&self) -> Vec<Arc<dyn Driver>> {
        let mut state = self.state.lock();
        let State { loaded, awaited } = &mut *state;
        awaited.retain(|family| {
            let Some(library) = Library::already_open(family.library()) else {
                return true;
            };
            match family.driver(library) {
                Ok(driver) => {
                    tracing::info!(family = family.name(), "found the driver of a device");
                    loaded.push(driver);
                }
                Err(error) => tracing::warn!(
                    %error,
                    "memory of this family of devices cannot be registered"
                ),
            }
            false
        });
        loaded.clone()
    }
}

impl Default for Drivers {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let loaded = state.loaded.iter().map(|driver| driver.family().name());
        f.debug_list().entries(loaded).finish()
    }
}

/// The device that owns an address.
pub(crate) fn owner_of(drivers: &[Arc<dyn Driver>], address: usize) -> Option<Device> {
    drivers.iter().find_map(|driver| {
        let Owner::Device(number) = driver.owner(address) else {
            return None;
        };
        Some(Device {
            driver: Arc::clone(driver),
            number,
        })
    })
}

/// As [`owner_of`], by drivers that cannot tell but by trying. Only for addresses that are known to be
/// out of the processor's reach.
pub(crate) fn probe(drivers: &[Arc<dyn Driver>], address: usize) -> Option<Device> {
    drivers.iter().find_map(|driver| {
        if driver.owner(address) != Owner::Unsaid {
            return None;
        }
        Some(Device {
            number: driver.probe(address)?,
            driver: Arc::clone(driver),
        })
    })
}

/// The error of a driver's call.
pub(crate) fn refused(
    family: Family,
    step: &'static str,
    address: usize,
    len: usize,
    number: i32,
) -> DeviceError {
    DeviceError::Driver {
        driver: family.name(),
        step,
        address,
        len: len as u64,
        number: number.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_none_are_refused() {
        for text in ["cuda:", "cuda:ascend:/x", "/x.so:ascend"] {
            let error = Drivers::parse(text).unwrap_err();
            assert!(matches!(error, DeviceError::Libraries { .. }), "{text}");
        }
        let error = Drivers::parse("cuda:/no/such/library.so").unwrap_err();
        assert!(error.to_string().contains("/no/such/library.so"), "{error}");
        assert!(Drivers::parse("").unwrap().loaded().is_empty());
    }

    #[test]
    fn a_driver_that_nobody_uses_is_not_loaded() {
        assert!(Drivers::system().loaded().is_empty());
    }
}
