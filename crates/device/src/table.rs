//! The table: regions by base, found by address.

use std::sync::Arc;

use snowskin_memory::region::ExternalRegion;
use snowskin_types::limits::MEMORY_REGIONS_MAX;

use crate::driver::Device;
use crate::error::DeviceError;
use crate::registry::Run;
use crate::users::{Use, Users};

/// How the bytes of a region are reached. Clones are uses of the region.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Mapped memory of this process.
    Host(ExternalRegion),
    /// Memory that only a driver reaches.
    Device(Device, Arc<Use>),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) base: usize,
    pub(crate) len: u64,
    pub(crate) users: Arc<Users>,
    /// `None` while it is being unregistered.
    pub(crate) access: Option<Access>,
}

impl Entry {
    /// Bytes from an address to the end, zero when the address is outside.
    fn behind(&self, address: usize) -> u64 {
        let offset = address.wrapping_sub(self.base) as u64;
        self.len.saturating_sub(offset)
    }
}

/// What is at an address.
pub(crate) enum Found<'t> {
    /// A region, how it is reached, the offset in it, and the bytes to its end.
    Inside {
        entry: &'t Entry,
        access: &'t Access,
        offset: u64,
        rest: u64,
    },
    /// No region for so many bytes, at least one.
    Outside(u64),
}

/// Regions that do not overlap, sorted by base.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Finds what is at an address. Runs of an object tend to go from region to region in order, so
    /// the region found last and the one behind it are tried first.
    pub(crate) fn at(&self, address: usize, hint: &mut usize) -> Found<'_> {
        let near = [*hint, hint.wrapping_add(1)];
        let index = near
            .into_iter()
            .find(|index| {
                let entry = self.entries.get(*index);
                entry.is_some_and(|entry| entry.behind(address) > 0)
            })
            .or_else(|| {
                self.entries
                    .partition_point(|entry| entry.base <= address)
                    .checked_sub(1)
            });
        let entry = index.and_then(|index| self.entries.get(index));
        let behind = entry.map_or(0, |entry| entry.behind(address));
        if let (Some(index), Some(entry), 1..) = (index, entry, behind) {
            *hint = index;
            return match &entry.access {
                Some(access) => Found::Inside {
                    entry,
                    access,
                    offset: (address - entry.base) as u64,
                    rest: behind,
                },
                None => Found::Outside(behind),
            };
        }
        let next = self.entries.get(index.map_or(0, |index| index + 1));
        Found::Outside(next.map_or(u64::MAX, |next| (next.base - address) as u64))
    }

    /// The region with this base that is not being unregistered.
    pub(crate) fn by_base(&mut self, base: usize) -> Option<&mut Entry> {
        let index = self.entries.binary_search_by_key(&base, |entry| entry.base);
        let entry = self.entries.get_mut(index.ok()?)?;
        Some(entry)
    }

    pub(crate) fn remove(&mut self, base: usize) {
        let index = self.entries.binary_search_by_key(&base, |entry| entry.base);
        if let Ok(index) = index {
            self.entries.remove(index);
        }
    }

    /// Checks that a range, which does not wrap, is free of regions.
    pub(crate) fn check_free(&self, run: Run) -> Result<(), DeviceError> {
        let end = run.address as u64 + run.len;
        let index = self
            .entries
            .partition_point(|entry| (entry.base as u64) < end);
        let before = index
            .checked_sub(1)
            .and_then(|index| self.entries.get(index));
        match before {
            Some(entry) if entry.base as u64 + entry.len > run.address as u64 => {
                Err(DeviceError::Overlap {
                    address: run.address,
                    len: run.len,
                    other: entry.base,
                    other_len: entry.len,
                })
            }
            _ => Ok(()),
        }
    }

    /// Adds regions that were checked, all or none.
    pub(crate) fn add(
        &mut self,
        regions: Vec<(Run, Access, Arc<Users>)>,
    ) -> Result<(), DeviceError> {
        if self.entries.len() + regions.len() > MEMORY_REGIONS_MAX {
            return Err(DeviceError::TooMany {
                max: MEMORY_REGIONS_MAX,
            });
        }
        for (run, _, _) in &regions {
            self.check_free(*run)?;
        }
        let many = regions.len() > 1;
        for (run, access, users) in regions {
            let entry = Entry {
                base: run.address,
                len: run.len,
                users,
                access: Some(access),
            };
            let at = if many {
                self.entries.len()
            } else {
                self.entries
                    .partition_point(|other| other.base < entry.base)
            };
            self.entries.insert(at, entry);
        }
        if many {
            self.entries.sort_by_key(|entry| entry.base);
        }
        Ok(())
    }
}
