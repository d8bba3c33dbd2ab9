//! Copies within the own process that the kernel carries out, so that a bad address is an error.
#![expect(unsafe_code, reason = "system calls that take addresses")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use snowskin_memory::error::MemoryError;
use snowskin_memory::region::ExternalRegion;
use snowskin_memory::slices::{SourceSlices, TargetSlices};

use crate::error::DeviceError;
use crate::maps::{self, Maps, Need};
use crate::registry::Run;
use crate::users::Use;

/// Most bytes of one call; the kernel takes a little less than 2 GiB.
const CALL_BYTES_MAX: usize = 1 << 30;

/// The kernel's copies, and whether this process may ask for them.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    denied: AtomicBool,
}

/// What to do about bytes that the kernel does not copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// They are not there.
    Fail,
    /// They may be memory of a driver that the processor can touch all the same.
    LookForDevices,
}

enum Step {
    Moved(usize),
    /// The memory is not there.
    Fault,
    /// The sandbox forbids the call.
    Denied,
}

impl Kernel {
    /// Takes as denied what the sandbox may deny.
    #[cfg(test)]
    pub(crate) fn denied() -> Self {
        Self {
            denied: AtomicBool::new(true),
        }
    }

    /// Copies `into.len()` bytes from an address that may be bad.
    pub(crate) fn read(
        &self,
        address: usize,
        into: &mut [u8],
        refused: Refused,
    ) -> Result<(), DeviceError> {
        let len = into.len();
        let mut done = 0;
        while done < len && !self.denied.load(Ordering::Relaxed) {
            let rest = &mut into[done..];
            let bytes = rest.len().min(CALL_BYTES_MAX);
            let local = libc::iovec {
                iov_base: rest.as_mut_ptr().cast(),
                iov_len: bytes,
            };
            let remote = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(address.wrapping_add(done)),
                iov_len: bytes,
            };
            // SAFETY: the local vector names a borrowed slice; the remote one is checked by the kernel
            // page by page, and nothing is written there.
            let moved = unsafe { libc::process_vm_readv(own(), &local, 1, &remote, 1, 0) };
            done += match self.judge(moved)? {
                Step::Moved(moved) => moved,
                Step::Denied => 0,
                Step::Fault => {
                    let part = plain_part(address, len, done, Need::Read, refused)?;
                    let bytes = &mut rest[..part.len as usize];
                    plain(part, false)?
                        .source(0, part.len)
                        .map_err(memory)?
                        .copy_to(&mut TargetSlices::of(bytes));
                    bytes.len()
                }
            };
        }
        if done == len {
            return Ok(());
        }
        let run = Run {
            address: address.wrapping_add(done),
            len: (len - done) as u64,
        };
        let region = checked(run, Need::Read)?;
        let mut source = region.source(0, run.len).map_err(memory)?;
        source.copy_to(&mut TargetSlices::of(&mut into[done..]));
        Ok(())
    }

    /// Copies to an address that may be bad.
    pub(crate) fn write(
        &self,
        address: usize,
        from: &[u8],
        refused: Refused,
    ) -> Result<(), DeviceError> {
        let len = from.len();
        let mut done = 0;
        while done < len && !self.denied.load(Ordering::Relaxed) {
            let rest = &from[done..];
            let bytes = rest.len().min(CALL_BYTES_MAX);
            let local = libc::iovec {
                // The kernel only reads the local side of a write.
                iov_base: rest.as_ptr().cast_mut().cast(),
                iov_len: bytes,
            };
            let remote = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(address.wrapping_add(done)),
                iov_len: bytes,
            };
            // SAFETY: the local vector names a borrowed slice. The remote range was named by the
            // caller as memory to be filled; the kernel checks that it is mapped and writable.
            let moved = unsafe { libc::process_vm_writev(own(), &local, 1, &remote, 1, 0) };
            done += match self.judge(moved)? {
                Step::Moved(moved) => moved,
                Step::Denied => 0,
                Step::Fault => {
                    let part = plain_part(address, len, done, Need::ReadWrite, refused)?;
                    let bytes = &rest[..part.len as usize];
                    let region = plain(part, true)?;
                    let mut target = region.target(0, part.len).map_err(memory)?;
                    SourceSlices::of(bytes).copy_to(&mut target);
                    bytes.len()
                }
            };
        }
        if done == len {
            return Ok(());
        }
        let run = Run {
            address: address.wrapping_add(done),
            len: (len - done) as u64,
        };
        let region = checked(run, Need::ReadWrite)?;
        let mut target = region.target(0, run.len).map_err(memory)?;
        SourceSlices::of(&from[done..]).copy_to(&mut target);
        Ok(())
    }

    /// What one call came to. Once denied, calls are denied from then on.
    fn judge(&self, moved: isize) -> Result<Step, DeviceError> {
        match usize::try_from(moved) {
            Ok(0) => return Ok(Step::Fault),
            Ok(moved) => return Ok(Step::Moved(moved)),
            Err(_) => {}
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EFAULT) => Ok(Step::Fault),
            Some(libc::EPERM | libc::ENOSYS) => {
                if !self.denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the sandbox forbids copies by the kernel (process_vm_readv); unregistered memory is checked against the list of mapped memory before each copy instead"
                    );
                }
                Ok(Step::Denied)
            }
            _ => Err(DeviceError::System {
                step: "copy memory within this process",
                reason: error.to_string(),
            }),
        }
    }
}

/// The next bytes, which the kernel does not copy, if they are to be copied plainly.
fn plain_part(
    address: usize,
    len: usize,
    done: usize,
    need: Need,
    refused: Refused,
) -> Result<Run, DeviceError> {
    let at = address.wrapping_add(done);
    let rest = Run {
        address: at,
        len: (len - done) as u64,
    };
    let reach = match refused {
        Refused::Fail => 0,
        Refused::LookForDevices => maps::device_reach(&maps::list()?, rest, need),
    };
    match reach {
        0 => Err(DeviceError::NotMapped {
            address,
            len: len as u64,
            at,
        }),
        reach => Ok(Run { len: reach, ..rest }),
    }
}

/// Wraps memory that the kernel was just found to list with the rights needed.
fn plain(run: Run, writable: bool) -> Result<ExternalRegion, DeviceError> {
    // SAFETY: the kernel lists the range as mapped with the rights needed; the caller named it for this
    // call, so it promises to keep it during the call, which is as long as the region lives.
    let wrapped = unsafe {
        match writable {
            true => ExternalRegion::new(run.address, run.len, None),
            false => ExternalRegion::new_read_only(run.address, run.len, None),
        }
    };
    wrapped.map_err(memory)
}

fn own() -> libc::pid_t {
    // SAFETY: without arguments and always successful.
    unsafe { libc::getpid() }
}

/// Wraps memory that the kernel lists as mapped right now.
fn checked(run: Run, need: Need) -> Result<ExternalRegion, DeviceError> {
    Maps::now()?.check(run, need)?;
    plain(run, need == Need::ReadWrite)
}

pub(crate) fn memory(error: MemoryError) -> DeviceError {
    match error {
        MemoryError::Gone { address, len, at } => DeviceError::NotMapped { address, len, at },
        other => DeviceError::System {
            step: "name a range of memory",
            reason: other.to_string(),
        },
    }
}

/// Wraps host memory that was found to be mapped when it was registered.
pub(crate) fn registered(
    run: Run,
    writable: bool,
    keep: Box<Use>,
) -> Result<ExternalRegion, DeviceError> {
    // SAFETY: the registry checked that the range is mapped for reading, and for writing unless it is
    // wrapped as read-only, and its caller promises to keep it so, and to leave the bytes of operations
    // alone, until it has unregistered the range, which waits until `keep` is dropped.
    let wrapped = unsafe {
        match writable {
            true => ExternalRegion::new(run.address, run.len, Some(keep)),
            false => ExternalRegion::new_read_only(run.address, run.len, Some(keep)),
        }
    };
    wrapped.map_err(memory)
}
