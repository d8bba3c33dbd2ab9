//! A shared library and its functions.
#![expect(unsafe_code, reason = "functions of shared libraries")]

use std::path::Path;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use crate::error::DeviceError;

/// A loaded library, which stays loaded as long as this lives.
pub(super) struct Library {
    handle: Handle,
    name: String,
}

impl Library {
    /// Loads a library.
    pub(super) fn open(path: &Path) -> Result<Self, DeviceError> {
        let name = path.display().to_string();
        // SAFETY: the library's initialisers run; who names a driver library vouches for it.
        match unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(handle) => Ok(Self { handle, name }),
            Err(error) => Err(DeviceError::Library {
                path: name,
                reason: error.to_string(),
            }),
        }
    }

    /// Finds a library that the process has loaded.
    pub(super) fn already_open(name: &str) -> Option<Self> {
        // SAFETY: nothing is loaded, so no initialiser runs.
        let handle = unsafe { Handle::open(Some(name), RTLD_NOW | libc::RTLD_NOLOAD) };
        let name = name.to_owned();
        handle.ok().map(|handle| Self { handle, name })
    }

    /// Finds a function.
    ///
    /// # Safety
    /// `F` is the type of the function with this name, and the result is used only while `self` lives.
    pub(super) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, DeviceError> {
        // SAFETY: the caller's promise.
        match unsafe { self.handle.get::<F>(name.as_bytes()) } {
            Ok(symbol) => Ok(*symbol),
            Err(error) => Err(DeviceError::Library {
                path: self.name.clone(),
                reason: error.to_string(),
            }),
        }
    }
}
