//! Copies within the own process that the kernel carries out, so that a bad address is an error.
#![expect(unsafe_code, reason = "system calls that take addresses")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use snowskin_memory::region::ExternalRegion;
use snowskin_memory::slices::{SourceSlices, TargetSlices};

use crate::error::DeviceError;
use crate::maps::{Maps, Need};
use crate::registry::Run;
use crate::users::Use;

/// Most bytes of one call; the kernel takes a little less than 2 GiB.
const CALL_BYTES_MAX: usize = 1 << 30;

/// The kernel's copies, and whether this process may ask for them.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    denied: AtomicBool,
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
    pub(crate) fn read(&self, address: usize, into: &mut [u8]) -> Result<(), DeviceError> {
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
            done += self.judge(moved, address, len, done)?;
        }
        if done == len {
            return Ok(());
        }
        let run = Run {
            address,
            len: len as u64,
        };
        let region = checked(run, Need::Read)?;
        let mut source = region
            .source(done as u64, (len - done) as u64)
            .map_err(memory)?;
        source.copy_to(&mut TargetSlices::of(&mut into[done..]));
        Ok(())
    }

    /// Copies to an address that may be bad.
    pub(crate) fn write(&self, address: usize, from: &[u8]) -> Result<(), DeviceError> {
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
            done += self.judge(moved, address, len, done)?;
        }
        if done == len {
            return Ok(());
        }
        let run = Run {
            address,
            len: len as u64,
        };
        let region = checked(run, Need::ReadWrite)?;
        let mut target = region
            .target(done as u64, (len - done) as u64)
            .map_err(memory)?;
        SourceSlices::of(&from[done..]).copy_to(&mut target);
        Ok(())
    }

    /// Bytes moved by one call, zero when calls are denied from now on.
    fn judge(
        &self,
        moved: isize,
        address: usize,
        len: usize,
        done: usize,
    ) -> Result<usize, DeviceError> {
        let step = match usize::try_from(moved) {
            Ok(0) => Step::Fault,
            Ok(moved) => Step::Moved(moved),
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EFAULT) => Step::Fault,
                    Some(libc::EPERM | libc::ENOSYS) => Step::Denied,
                    _ => {
                        return Err(DeviceError::System {
                            step: "copy memory within this process",
                            reason: error.to_string(),
                        });
                    }
                }
            }
        };
        match step {
            Step::Moved(moved) => Ok(moved),
            Step::Fault => Err(DeviceError::NotMapped {
                address,
                len: len as u64,
                at: address.wrapping_add(done),
            }),
            Step::Denied => {
                if !self.denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the sandbox forbids copies by the kernel (process_vm_readv); unregistered memory is checked against the list of mapped memory before each copy instead"
                    );
                }
                Ok(0)
            }
        }
    }
}

fn own() -> libc::pid_t {
    // SAFETY: without arguments and always successful.
    unsafe { libc::getpid() }
}

/// Wraps memory that the kernel lists as mapped right now.
fn checked(run: Run, need: Need) -> Result<ExternalRegion, DeviceError> {
    Maps::now()?.check(run, need)?;
    // SAFETY: the range was just found to be mapped with the rights needed; the caller named it for
    // this call, so it promises to keep it during the call, which is as long as the region lives.
    unsafe { ExternalRegion::new(run.address, run.len, None) }.map_err(memory)
}

pub(crate) fn memory(error: snowskin_memory::error::MemoryError) -> DeviceError {
    DeviceError::System {
        step: "name a range of memory",
        reason: error.to_string(),
    }
}

/// Wraps host memory that was found to be mapped when it was registered.
pub(crate) fn registered(run: Run, keep: Box<Use>) -> Result<ExternalRegion, DeviceError> {
    // SAFETY: the registry checked that the range is mapped for reading and writing, and its caller
    // promises to keep it so, and to leave the bytes of operations alone, until it has unregistered
    // the range, which waits until `keep` is dropped.
    unsafe { ExternalRegion::new(run.address, run.len, Some(keep)) }.map_err(memory)
}
