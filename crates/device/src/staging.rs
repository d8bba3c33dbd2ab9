//! Bounded memory between devices (or unregistered memory) and the network.
#![expect(unsafe_code, reason = "staging memory is lent as a region by address")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use snowskin_memory::buffer::{Buffer, DIRECT_IO_ALIGN};
use snowskin_memory::region::ExternalRegion;
use snowskin_types::limits::STAGING_KEPT_BYTES_MAX;

use crate::error::DeviceError;
use crate::kernel::memory;

/// Below this, buffers are not kept: the allocator is as fast.
const KEEP_FROM: usize = 64 << 10;

/// Whether to wait for staging memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as the registry's patience.
    Patiently,
    /// No longer than this either.
    Within(Duration),
    Never,
}

#[derive(Debug)]
pub(crate) struct Staging {
    max: u64,
    patience: Duration,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes lent.
    used: u64,
    /// Buffers for reuse, by size.
    idle: BTreeMap<usize, Vec<Buffer>>,
    idle_bytes: u64,
}

/// Memory to stage in; it goes back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    buffer: Option<Buffer>,
    size: usize,
    staging: Arc<Staging>,
}

impl Staging {
    pub(crate) fn new(max: u64, patience: Duration) -> Self {
        Self {
            max,
            patience,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Bytes lent now.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Lends at least `len` bytes, one or more, whose content is arbitrary.
    pub(crate) fn lease(self: &Arc<Self>, len: u64, wait: Wait) -> Result<Lease, DeviceError> {
        let max = self.max;
        let too_large = DeviceError::TooLarge { wanted: len, max };
        let size = usize::try_from(len)
            .ok()
            .filter(|len| isize::try_from(*len).is_ok_and(|_| *len as u64 <= max))
            .map(|len| class_of(len, max))
            .ok_or(too_large)?;
        let wanted = size as u64;
        let mut state = self.state.lock();
        let patience = match wait {
            Wait::Patiently => self.patience,
            Wait::Within(time) => time.min(self.patience),
            Wait::Never => Duration::ZERO,
        };
        if !patience.is_zero() {
            let full = |state: &mut State| state.used + wanted > max;
            self.freed.wait_while_for(&mut state, full, patience);
        }
        let used = state.used;
        if used + wanted > max {
            let wanted = len;
            return Err(DeviceError::StagingFull { wanted, used, max });
        }
        state.used += wanted;
        let mut lease = Lease {
            buffer: state.take(size),
            size,
            staging: Arc::clone(self),
        };
        let dropped = state.trim(max.saturating_sub(used + wanted));
        drop(state);
        drop(dropped);
        if lease.buffer.is_none() {
            let buffer = Buffer::zeroed(size, DIRECT_IO_ALIGN.min(size.next_power_of_two()));
            lease.buffer = Some(buffer.map_err(memory)?);
        }
        Ok(lease)
    }
}

impl State {
    fn take(&mut self, size: usize) -> Option<Buffer> {
        let buffer = self.idle.get_mut(&size)?.pop()?;
        self.idle_bytes -= size as u64;
        Some(buffer)
    }

    /// Gives up idle buffers, largest first, until at most so many bytes are kept.
    fn trim(&mut self, most: u64) -> Vec<Buffer> {
        let mut dropped = Vec::new();
        while self.idle_bytes > most {
            let Some(mut last) = self.idle.last_entry() else {
                break;
            };
            let size = *last.key() as u64;
            match last.get_mut().pop() {
                Some(buffer) => {
                    dropped.push(buffer);
                    self.idle_bytes -= size;
                }
                None => drop(last.remove()),
            }
        }
        dropped
    }
}

impl Lease {
    /// The bytes, at least as many as asked for.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }

    /// The same memory as a region, which gives it back when the last list over it is gone.
    pub(crate) fn into_region(mut self) -> Result<ExternalRegion, DeviceError> {
        let address = self.bytes().as_mut_ptr().expose_provenance();
        let len = self.size as u64;
        // SAFETY: the buffer has this many bytes and lives in `keep`, which hands it to nobody else
        // before it is dropped.
        unsafe { ExternalRegion::new(address, len, Some(Box::new(self))) }.map_err(memory)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.staging.state.lock();
        state.used -= self.size as u64;
        let spare = self.staging.max.saturating_sub(state.used);
        let mut rest = self.buffer.take();
        let keep = self.size >= KEEP_FROM
            && state.idle_bytes + self.size as u64 <= spare.min(STAGING_KEPT_BYTES_MAX);
        if let Some(buffer) = rest.take_if(|_| keep) {
            state.idle.entry(self.size).or_default().push(buffer);
            state.idle_bytes += self.size as u64;
        }
        drop(state);
        self.staging.freed.notify_all();
        // Giving memory back to the system takes long; nobody waits for it.
        drop(rest);
    }
}

/// The size of the buffer for a length: four sizes per doubling, so that buffers are reused and at
/// most a quarter is wasted.
fn class_of(len: usize, max: u64) -> usize {
    if len < KEEP_FROM {
        return len.max(1);
    }
    let step = (len.next_power_of_two() / 8).max(1);
    let class = len.next_multiple_of(step);
    if class as u64 > max { len } else { class }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_a_quarter_and_never_pass_the_bound() {
        let max = 1 << 30;
        for len in [
            1,
            63,
            4096,
            65_535,
            65_536,
            65_537,
            100_000,
            1 << 20,
            (1 << 20) + 1,
            1 << 30,
        ] {
            let class = class_of(len, max);
            assert!(class >= len && class as u64 <= max, "{len} {class}");
            assert!(class - len <= len / 4, "{len} {class}");
        }
        assert_eq!(class_of(1 << 20, 1 << 20), 1 << 20);
        assert_eq!(class_of((1 << 20) + 1, (1 << 20) + 5), (1 << 20) + 1);
    }

    #[test]
    fn large_buffers_are_used_again_and_small_ones_are_not_kept() {
        let staging = Arc::new(Staging::new(1 << 20, Duration::ZERO));
        let place = |lease: &mut Lease| lease.bytes().as_ptr().expose_provenance();
        let mut first = staging.lease(100_000, Wait::Never).unwrap();
        let address = place(&mut first);
        drop(first);
        let mut again = staging.lease(99_000, Wait::Never).unwrap();
        assert_eq!(place(&mut again), address);
        drop(again);
        drop(staging.lease(100, Wait::Never).unwrap());
        assert_eq!(
            staging.state.lock().idle_bytes,
            class_of(100_000, 1 << 20) as u64
        );
        // What lies idle makes room for what is wanted.
        let all = staging.lease(1 << 20, Wait::Never).unwrap();
        assert_eq!(
            (staging.used(), staging.state.lock().idle_bytes),
            (1 << 20, 0)
        );
        drop(all);
        assert_eq!(
            (staging.used(), staging.state.lock().idle_bytes),
            (0, 1 << 20)
        );
    }
}
