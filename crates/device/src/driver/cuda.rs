//! The driver interface of NVIDIA devices.
#![expect(unsafe_code, reason = "calls of a C library")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use parking_lot::Mutex;

use super::library::Library;
use super::{Driver, Family, Fetch, Owner, Store, refused};
use crate::error::DeviceError;

type Context = *mut c_void;
type GetAttribute = unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int;
type RetainPrimary = unsafe extern "C" fn(*mut Context, c_int) -> c_int;
type GetCurrent = unsafe extern "C" fn(*mut Context) -> c_int;
type SetCurrent = unsafe extern "C" fn(Context) -> c_int;
type CopyToHost = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;
type CopyToDevice = unsafe extern "C" fn(u64, *const c_void, usize) -> c_int;
type Synchronize = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Attributes of an address.
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
/// The memory type of a device.
const TYPE_DEVICE: c_uint = 2;
const SUCCESS: c_int = 0;

pub(super) struct Cuda {
    get_attribute: GetAttribute,
    retain_primary: RetainPrimary,
    get_current: GetCurrent,
    set_current: SetCurrent,
    copy_to_host: CopyToHost,
    copy_to_device: CopyToDevice,
    synchronize: Synchronize,
    /// The primary context of each device used, by number; an address because contexts are opaque.
    /// They are retained once and not released: the driver is gone before us when a process ends.
    contexts: Mutex<BTreeMap<c_int, usize>>,
    _library: Library,
}

impl Cuda {
    pub(super) fn new(library: Library) -> Result<Self, DeviceError> {
        // SAFETY: the signatures are those of the driver interface, whose functions keep their
        // meaning under a name for good; the library is kept as long as the functions.
        unsafe {
            Ok(Self {
                get_attribute: library.function("cuPointerGetAttribute")?,
                retain_primary: library.function("cuDevicePrimaryCtxRetain")?,
                get_current: library.function("cuCtxGetCurrent")?,
                set_current: library.function("cuCtxSetCurrent")?,
                copy_to_host: library.function("cuMemcpyDtoH_v2")?,
                copy_to_device: library.function("cuMemcpyHtoD_v2")?,
                synchronize: library.function("cuStreamSynchronize")?,
                contexts: Mutex::default(),
                _library: library,
            })
        }
    }

    fn attribute(&self, attribute: c_int, address: usize) -> Option<c_uint> {
        // All attributes asked for are 32 bits wide; more room does not hurt.
        let mut value = [0 as c_uint; 4];
        let room = value.as_mut_ptr().cast();
        // SAFETY: the room is larger than the attribute; the driver only looks the address up.
        let code = unsafe { (self.get_attribute)(room, attribute, address as u64) };
        (code == SUCCESS).then_some(value[0])
    }

    fn context(&self, number: c_int) -> Result<usize, c_int> {
        let mut contexts = self.contexts.lock();
        if let Some(context) = contexts.get(&number) {
            return Ok(*context);
        }
        let mut context: Context = ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        match unsafe { (self.retain_primary)(&mut context, number) } {
            SUCCESS => {
                let context = context.expose_provenance();
                contexts.insert(number, context);
                Ok(context)
            }
            code => Err(code),
        }
    }

    /// Runs copies with the device's context current on this thread.
    fn with_context(
        &self,
        number: c_int,
        run: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let failed = |step, code| refused(Family::Cuda, step, 0, 0, code);
        let context = self
            .context(number)
            .map_err(|code| failed("take the context of the device for", code))?;
        let mut before: Context = ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        let code = unsafe { (self.get_current)(&mut before) };
        if code != SUCCESS {
            return Err(failed("tell the current context for", code));
        }
        let wanted = ptr::with_exposed_provenance_mut::<c_void>(context);
        if before == wanted {
            return run();
        }
        // SAFETY: the context is retained.
        let code = unsafe { (self.set_current)(wanted) };
        if code != SUCCESS {
            return Err(failed("make the context current for", code));
        }
        let result = run();
        // SAFETY: the context was current before, or is null, which means none.
        let code = unsafe { (self.set_current)(before) };
        if code != SUCCESS {
            tracing::warn!(code, "the thread's context could not be made current again");
        }
        result
    }
}

impl Driver for Cuda {
    fn family(&self) -> Family {
        Family::Cuda
    }

    fn owner(&self, address: usize) -> Owner {
        if self.attribute(MEMORY_TYPE, address) != Some(TYPE_DEVICE) {
            return Owner::Other;
        }
        // Managed memory may count as a device's at the moment, and is in the processor's reach.
        if self
            .attribute(IS_MANAGED, address)
            .is_some_and(|managed| managed != 0)
        {
            return Owner::Other;
        }
        match self.attribute(DEVICE_ORDINAL, address) {
            // The driver writes a signed number.
            Some(number) => Owner::Device(number.cast_signed()),
            None => Owner::Other,
        }
    }

    fn probe(&self, _address: usize) -> Option<i32> {
        None
    }

    fn fetch(&self, number: i32, parts: &mut [Fetch<'_>]) -> Result<(), DeviceError> {
        self.with_context(number, || {
            for part in parts {
                let (address, len) = (part.address, part.into.len());
                let into = part.into.as_mut_ptr().cast();
                // SAFETY: the host side is a borrowed slice of this length; the driver checks the
                // device side. The call ends when the bytes are there.
                let code = unsafe { (self.copy_to_host)(into, address as u64, len) };
                if code != SUCCESS {
                    return Err(refused(Family::Cuda, "read", address, len, code));
                }
            }
            Ok(())
        })
    }

    fn store(&self, number: i32, parts: &[Store<'_>]) -> Result<(), DeviceError> {
        self.with_context(number, || {
            for part in parts {
                let (address, len) = (part.address, part.from.len());
                let from = part.from.as_ptr().cast();
                // SAFETY: as in `fetch`.
                let code = unsafe { (self.copy_to_device)(address as u64, from, len) };
                if code != SUCCESS {
                    return Err(refused(Family::Cuda, "write", address, len, code));
                }
            }
            // Small copies may still be on their way to the device.
            // SAFETY: null names the default stream of the current context.
            match unsafe { (self.synchronize)(ptr::null_mut()) } {
                SUCCESS => Ok(()),
                code => Err(refused(Family::Cuda, "finish writes of", 0, 0, code)),
            }
        })
    }
}
