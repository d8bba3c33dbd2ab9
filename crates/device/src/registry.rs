//! The table of registered memory, as engines see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use snowskin_memory::probe::Touch;
use snowskin_memory::region::ExternalRegion;
use snowskin_types::limits::{STAGING_BYTES_MAX, STAGING_PATIENCE};

use crate::driver::{self, Device, Drivers};
use crate::error::DeviceError;
use crate::kernel::Kernel;
use crate::maps::{Maps, Need};
use crate::staging::Staging;
use crate::table::{Access, Found, Table};
use crate::users::{Use, Users};

/// Bytes of memory named by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub address: usize,
    /// Bytes.
    pub len: u64,
}

/// Where memory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In the processor's reach.
    Host,
    /// On a device: only its driver reaches it.
    Device,
}

/// How a registry treats memory.
#[derive(Debug, Clone)]
pub struct Config {
    /// Refuses memory that is not registered, instead of copying it.
    pub strict: bool,
    /// Most bytes that are staged at a time.
    pub staging_max: u64,
    /// Longest wait for staging memory.
    pub staging_patience: Duration,
    /// Where drivers come from.
    pub drivers: Drivers,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            strict: false,
            staging_max: STAGING_BYTES_MAX,
            staging_patience: STAGING_PATIENCE.duration(),
            drivers: Drivers::system(),
        }
    }
}

impl Config {
    /// Takes `SNOWSKIN_STRICT_BUFFERS` and `SNOWSKIN_DRIVER_LIBRARIES` from the environment.
    ///
    /// # Errors
    /// When one of them has a value that is not allowed, or a library cannot be loaded.
    pub fn from_environment() -> Result<Self, DeviceError> {
        const STRICT: &str = "SNOWSKIN_STRICT_BUFFERS";
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let mut config = Self::default();
        if let Some(text) = variable(STRICT) {
            config.strict = match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => true,
                "0" | "false" | "no" | "off" => false,
                _ => return Err(DeviceError::Switch { name: STRICT, text }),
            };
        }
        if let Some(text) = variable("SNOWSKIN_DRIVER_LIBRARIES") {
            config.drivers = Drivers::parse(&text)?;
        }
        Ok(config)
    }
}

/// A registered region.
#[derive(Debug, Clone)]
pub struct Region {
    /// First byte.
    pub base: usize,
    /// Bytes.
    pub len: u64,
    /// Where it lives.
    pub kind: Kind,
    /// Whether bytes can be received into it. Read-only memory, such as mapped weights, can be sent.
    pub writable: bool,
    /// Host memory for transfers. While a clone or list of it lives, the region cannot be unregistered.
    pub external: Option<ExternalRegion>,
}

/// What a registry did so far, and what it holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Runs of unregistered memory that were copied.
    pub unregistered_copies: u64,
    /// Bytes copied to devices.
    pub device_bytes_in: u64,
    /// Bytes copied from devices.
    pub device_bytes_out: u64,
    /// Registrations and uses that were refused.
    pub refused: u64,
    /// Regions registered now.
    pub regions: u64,
    /// Bytes of staging memory in use now.
    pub staged_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) unregistered_copies: AtomicU64,
    pub(crate) device_bytes_in: AtomicU64,
    pub(crate) device_bytes_out: AtomicU64,
    pub(crate) refused: AtomicU64,
}

pub(crate) struct Inner {
    pub(crate) strict: bool,
    pub(crate) drivers: Drivers,
    pub(crate) table: RwLock<Table>,
    pub(crate) staging: Arc<Staging>,
    pub(crate) kernel: Kernel,
    pub(crate) counters: Counters,
    warned: AtomicBool,
}

/// The table of registered memory of one process part. Clones are the same table.
///
/// Registering is a promise: the memory stays mapped (or allocated on its device), and its bytes are not
/// used otherwise while an operation on them is under way, until it is unregistered.
#[derive(Clone)]
pub struct Registry {
    pub(crate) inner: Arc<Inner>,
}

impl Registry {
    /// Makes an empty table.
    pub fn new(config: Config) -> Self {
        Self::with_kernel(config, Kernel::default())
    }

    pub(crate) fn with_kernel(config: Config, kernel: Kernel) -> Self {
        Self {
            inner: Arc::new(Inner {
                strict: config.strict,
                drivers: config.drivers,
                table: RwLock::default(),
                staging: Arc::new(Staging::new(config.staging_max, config.staging_patience)),
                kernel,
                counters: Counters::default(),
                warned: AtomicBool::new(false),
            }),
        }
    }

    /// Whether unregistered memory is refused.
    pub fn is_strict(&self) -> bool {
        self.inner.strict
    }

    /// Registers memory, and tells where it lives. A region of which any page is read-only is read-only as
    /// a whole: it can be sent, but nothing can be received into it.
    ///
    /// # Errors
    /// When it is null, empty, overlaps a registered region, is not mapped here for reading and belongs to
    /// no device, or there are too many regions.
    pub fn register(&self, address: usize, len: u64) -> Result<Kind, DeviceError> {
        let kinds = self.register_runs(&[Run { address, len }])?;
        Ok(kinds.first().copied().unwrap_or(Kind::Host))
    }

    /// Registers many regions, all or none.
    ///
    /// # Errors
    /// As [`Registry::register`], also for overlaps within the list.
    pub fn register_all(&self, runs: &[Run]) -> Result<(), DeviceError> {
        self.register_runs(runs).map(drop)
    }

    fn register_runs(&self, runs: &[Run]) -> Result<Vec<Kind>, DeviceError> {
        self.inner.count_refusal(self.inner.register(runs))
    }

    /// Unregisters the region with this base, once no operation uses it any more. New operations do not
    /// see it from now on.
    ///
    /// # Errors
    /// When there is no such region, or it is still used after `patience`; it is registered then as
    /// before.
    pub fn unregister(&self, address: usize, patience: Duration) -> Result<(), DeviceError> {
        let unknown = DeviceError::Unknown { address };
        let taken = self.inner.table.write().by_base(address).and_then(|entry| {
            let access = entry.access.take()?;
            Some((access, entry.len, Arc::clone(&entry.users)))
        });
        let (access, len, users) = taken.ok_or(unknown)?;
        let home = match &access {
            Access::Host(region) => Home::Host {
                writable: region.is_writable(),
            },
            Access::Device(device, _) => Home::Device(device.clone()),
        };
        drop(access);
        let waited = users.wait_idle(patience);
        let mut table = self.inner.table.write();
        match waited {
            Ok(()) => {
                table.remove(address);
                Ok(())
            }
            Err(users_left) => {
                let access = access_to(Run { address, len }, home, &users)?;
                if let Some(entry) = table.by_base(address) {
                    entry.access = Some(access);
                }
                let users = users_left;
                Err(DeviceError::Busy { address, users })
            }
        }
    }

    /// Bytes from an address to the end of its region, `None` outside of regions.
    pub fn capacity_at(&self, address: usize) -> Option<u64> {
        match self.inner.table.read().at(address, &mut 0) {
            Found::Inside { rest, .. } => Some(rest),
            Found::Outside(_) => None,
        }
    }

    /// The region that holds a whole range.
    pub fn region_of(&self, address: usize, len: u64) -> Option<Region> {
        let table = self.inner.table.read();
        let Found::Inside {
            entry,
            access,
            rest,
            ..
        } = table.at(address, &mut 0)
        else {
            return None;
        };
        if rest < len {
            return None;
        }
        let (kind, external) = match access {
            Access::Host(external) => (Kind::Host, Some(external.clone())),
            Access::Device(..) => (Kind::Device, None),
        };
        let writable = external.as_ref().is_none_or(ExternalRegion::is_writable);
        Some(Region {
            base: entry.base,
            len: entry.len,
            kind,
            writable,
            external,
        })
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        let Counters {
            unregistered_copies,
            device_bytes_in,
            device_bytes_out,
            refused,
        } = &self.inner.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            unregistered_copies: read(unregistered_copies),
            device_bytes_in: read(device_bytes_in),
            device_bytes_out: read(device_bytes_out),
            refused: read(refused),
            regions: self.inner.table.read().len() as u64,
            staged_bytes: self.inner.staging.used(),
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("strict", &self.inner.strict)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn register(&self, runs: &[Run]) -> Result<Vec<Kind>, DeviceError> {
        check_list(runs)?;
        {
            // What overlaps is told so, whatever else is wrong with it.
            let table = self.table.read();
            runs.iter().try_for_each(|run| table.check_free(*run))?;
        }
        let drivers = self.drivers.loaded();
        let mut maps = None;
        let mut regions = Vec::with_capacity(runs.len());
        let mut kinds = Vec::with_capacity(runs.len());
        for &run in runs {
            let mut device = device_of(run, |address| driver::owner_of(&drivers, address))?;
            let mut writable = true;
            if device.is_none() {
                let maps = match &maps {
                    Some(maps) => maps,
                    None => maps.insert(Maps::now()?),
                };
                if maps.check(run, Need::ReadWrite).is_err() {
                    device = device_of(run, |address| driver::probe(&drivers, address))?;
                    if device.is_none() {
                        maps.check(run, Need::Read)?;
                        writable = false;
                    }
                }
            }
            let home = match device {
                Some(device) => Home::Device(device),
                None => Home::Host { writable },
            };
            kinds.push(match &home {
                Home::Device(_) => Kind::Device,
                Home::Host { .. } => Kind::Host,
            });
            let users = Arc::new(Users::default());
            regions.push((run, access_to(run, home, &users)?, users));
        }
        self.table.write().add(regions)?;
        Ok(kinds)
    }

    pub(crate) fn count_refusal<T>(
        &self,
        result: Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if result.is_err() {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Counts a copy of unregistered memory; the first one is logged.
    pub(crate) fn count_unregistered(&self, run: Run) {
        let before = self
            .counters
            .unregistered_copies
            .fetch_add(1, Ordering::Relaxed);
        if before == 0 && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                address = format_args!("{:#x}", run.address),
                len = run.len,
                "memory that is not registered is copied on its way; register it to save the copy (told once)"
            );
        }
    }
}

/// Where memory was found to live.
enum Home {
    Host { writable: bool },
    Device(Device),
}

/// Wraps memory that was found to be there.
fn access_to(run: Run, home: Home, users: &Arc<Users>) -> Result<Access, DeviceError> {
    let guard = Use::new(users);
    Ok(match home {
        Home::Device(device) => Access::Device(device, Arc::new(guard)),
        Home::Host { writable } => {
            let region = crate::kernel::registered(run, writable, Box::new(guard))?;
            // Asked now, while it is there, so that what is answered later has a meaning.
            region.probe(0, run.len, Touch::Read).ok();
            Access::Host(region)
        }
    })
}

/// The device that owns both ends of a range. Vendors hand out device memory by the range, so the
/// middle is left to the driver's copies, which fail without harm.
fn device_of(
    run: Run,
    owner: impl Fn(usize) -> Option<Device>,
) -> Result<Option<Device>, DeviceError> {
    let last = run.address + (run.len - 1) as usize;
    match (owner(run.address), owner(last)) {
        (None, None) => Ok(None),
        (Some(first), Some(last)) if first.is_same(&last) => Ok(Some(first)),
        _ => Err(DeviceError::Mixed {
            address: run.address,
            len: run.len,
        }),
    }
}

/// Checks what can be told from the list alone.
fn check_list(runs: &[Run]) -> Result<(), DeviceError> {
    for run in runs {
        check_run(*run)?;
    }
    let mut order: Vec<Run> = runs.to_vec();
    order.sort_unstable_by_key(|run| run.address);
    let clash = order
        .windows(2)
        .find(|pair| pair[0].address as u64 + pair[0].len > pair[1].address as u64);
    match clash {
        Some(pair) => Err(DeviceError::Overlap {
            address: pair[1].address,
            len: pair[1].len,
            other: pair[0].address,
            other_len: pair[0].len,
        }),
        None => Ok(()),
    }
}

/// Checks that a range is not null or empty and does not wrap.
fn check_run(run: Run) -> Result<(), DeviceError> {
    let Run { address, len } = run;
    if address == 0 {
        return Err(DeviceError::Null);
    }
    if len == 0 {
        return Err(DeviceError::Empty { address });
    }
    let fits = usize::try_from(len)
        .ok()
        .filter(|len| isize::try_from(*len).is_ok())
        .and_then(|len| address.checked_add(len));
    match fits {
        Some(_) => Ok(()),
        None => Err(DeviceError::Wraps { address, len }),
    }
}

#[cfg(test)]
#[path = "registry_test.rs"]
#[expect(unsafe_code, reason = "memory that is taken away again")]
mod registry_test;
