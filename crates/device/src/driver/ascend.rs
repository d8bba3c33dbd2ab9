//! The runtime interface of Ascend devices.
#![expect(unsafe_code, reason = "calls of a C library")]

use std::ffi::{c_int, c_void};
use std::ptr;

use super::library::Library;
use super::{Driver, Family, Fetch, Owner, Store, refused};
use crate::error::DeviceError;

type Context = *mut c_void;
type GetAttributes = unsafe extern "C" fn(*const c_void, *mut Attributes) -> c_int;
type Copy = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, c_int) -> c_int;
type SetDevice = unsafe extern "C" fn(i32) -> c_int;
type GetDevice = unsafe extern "C" fn(*mut i32) -> c_int;
type GetContext = unsafe extern "C" fn(*mut Context) -> c_int;
type SetContext = unsafe extern "C" fn(Context) -> c_int;

const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
/// The kind of place of a device.
const PLACE_DEVICE: c_int = 1;
const SUCCESS: c_int = 0;

/// What the runtime tells of an address: the place first, then what is not needed here. The runtime
/// writes 28 bytes; there is room for more.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    number: u32,
    place: c_int,
    _rest: [u32; 14],
}

pub(super) struct Ascend {
    /// Absent in old versions.
    get_attributes: Option<GetAttributes>,
    copy: Copy,
    set_device: SetDevice,
    get_device: GetDevice,
    get_context: GetContext,
    set_context: SetContext,
    _library: Library,
}

impl Ascend {
    pub(super) fn new(library: Library) -> Result<Self, DeviceError> {
        // SAFETY: the signatures are those of the runtime interface; the library is kept as long as
        // the functions.
        unsafe {
            Ok(Self {
                get_attributes: library.function("aclrtPointerGetAttributes").ok(),
                copy: library.function("aclrtMemcpy")?,
                set_device: library.function("aclrtSetDevice")?,
                get_device: library.function("aclrtGetDevice")?,
                get_context: library.function("aclrtGetCurrentContext")?,
                set_context: library.function("aclrtSetCurrentContext")?,
                _library: library,
            })
        }
    }

    /// Runs copies with the device current on this thread.
    fn with_device(
        &self,
        number: i32,
        run: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut before: Context = ptr::null_mut();
        // A thread without a device has no context, which is an error here and no obstacle.
        // SAFETY: the runtime writes one pointer.
        let had_context =
            unsafe { (self.get_context)(&mut before) } == SUCCESS && !before.is_null();
        if had_context && self.current() == Some(number) {
            return run();
        }
        // SAFETY: the call takes a number.
        let code = unsafe { (self.set_device)(number) };
        if code != SUCCESS {
            return Err(refused(Family::Ascend, "choose the device of", 0, 0, code));
        }
        let result = run();
        if had_context {
            // SAFETY: the context was current on this thread before.
            let code = unsafe { (self.set_context)(before) };
            if code != SUCCESS {
                tracing::warn!(code, "the thread's context could not be made current again");
            }
        }
        result
    }

    fn current(&self) -> Option<i32> {
        let mut number = 0;
        // SAFETY: the runtime writes one number.
        let code = unsafe { (self.get_device)(&mut number) };
        (code == SUCCESS).then_some(number)
    }
}

impl Driver for Ascend {
    fn family(&self) -> Family {
        Family::Ascend
    }

    fn owner(&self, address: usize) -> Owner {
        let Some(get_attributes) = self.get_attributes else {
            return Owner::Unsaid;
        };
        let mut attributes = Attributes::default();
        // SAFETY: there is more room than the runtime writes; it only looks the address up.
        let code = unsafe { get_attributes(ptr::without_provenance(address), &mut attributes) };
        if code == SUCCESS && attributes.place == PLACE_DEVICE {
            return i32::try_from(attributes.number).map_or(Owner::Other, Owner::Device);
        }
        Owner::Other
    }

    fn probe(&self, address: usize) -> Option<i32> {
        let number = self.current()?;
        let mut byte = [0];
        let into = &mut byte;
        let part = Fetch { address, into };
        self.fetch(number, &mut [part]).ok().map(|()| number)
    }

    fn fetch(&self, number: i32, parts: &mut [Fetch<'_>]) -> Result<(), DeviceError> {
        self.with_device(number, || {
            for part in parts {
                let (address, len) = (part.address, part.into.len());
                let into = part.into.as_mut_ptr().cast();
                let from = ptr::without_provenance(address);
                // SAFETY: the host side is a borrowed slice of this length; the runtime checks the
                // device side. The call ends when the bytes are there.
                let code = unsafe { (self.copy)(into, len, from, len, DEVICE_TO_HOST) };
                if code != SUCCESS {
                    return Err(refused(Family::Ascend, "read", address, len, code));
                }
            }
            Ok(())
        })
    }

    fn store(&self, number: i32, parts: &[Store<'_>]) -> Result<(), DeviceError> {
        self.with_device(number, || {
            for part in parts {
                let (address, len) = (part.address, part.from.len());
                let from = part.from.as_ptr().cast();
                let into = ptr::without_provenance_mut(address);
                // SAFETY: as in `fetch`.
                let code = unsafe { (self.copy)(into, len, from, len, HOST_TO_DEVICE) };
                if code != SUCCESS {
                    return Err(refused(Family::Ascend, "write", address, len, code));
                }
            }
            Ok(())
        })
    }
}
