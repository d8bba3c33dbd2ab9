//! From runs to pieces: what of an object goes directly, and what is copied, by whom.

use std::sync::Arc;

use snowskin_memory::probe::{Probes, Touch};
use snowskin_memory::region::ExternalRegion;
use snowskin_memory::scattered::Scattered;

use crate::driver::Device;
use crate::error::DeviceError;
use crate::kernel::memory;
use crate::registry::{Inner, Run};
use crate::table::{Access, Found, Table};
use crate::users::Use;

/// Bytes that are reached in one way.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) run: Run,
    pub(crate) way: Way,
}

/// How bytes are reached.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// By the processor, at this offset of a region.
    Direct(ExternalRegion, u64),
    /// By a driver; the use keeps the region registered.
    Device { device: Device, _hold: Arc<Use> },
    /// By the kernel.
    Unregistered,
}

impl Inner {
    /// Lists runs that are all in registered host memory, which is still there; `None` when some are not.
    pub(crate) fn direct(
        &self,
        runs: &[Run],
        touch: Touch,
    ) -> Result<Option<Scattered>, DeviceError> {
        let table = self.table.read();
        let mut probes = Probes::new(touch);
        let mut list = Scattered::with_capacity(runs.len());
        let mut hint = 0;
        for &run in runs {
            let (mut address, mut left) = (run.address, run.len);
            while left > 0 {
                let Found::Inside {
                    access: Access::Host(region),
                    offset,
                    rest,
                    ..
                } = table.at(address, &mut hint)
                else {
                    return Ok(None);
                };
                let take = left.min(rest);
                check_rights(region, address, take, touch)?;
                list.push(region, offset, take).map_err(memory)?;
                probes.add(region, offset, take);
                left -= take;
                // Inside a region, whose end is an address, so nothing is lost or wraps.
                address += take as usize;
            }
        }
        let due = probes.due();
        // A page that has to be fetched from a disk shall not keep others from the table.
        drop(table);
        due.ask().map_err(memory)?;
        Ok(Some(list))
    }

    /// Takes runs apart, in order.
    pub(crate) fn pieces(&self, runs: &[Run], touch: Touch) -> Result<Vec<Piece>, DeviceError> {
        let table = self.table.read();
        let mut pieces = Vec::with_capacity(runs.len());
        let mut hint = 0;
        for &run in runs {
            check(run)?;
            let (mut address, mut left) = (run.address, run.len);
            while left > 0 {
                let (way, reach) = way_at(&table, address, &mut hint);
                let len = left.min(reach);
                let part = Run { address, len };
                if self.strict && matches!(way, Way::Unregistered) {
                    return Err(DeviceError::Unregistered { address, len });
                }
                if let Way::Direct(region, _) = &way {
                    check_rights(region, address, len, touch)?;
                }
                pieces.push(Piece { run: part, way });
                left -= len;
                // The run was checked not to wrap.
                address += len as usize;
            }
        }
        Ok(pieces)
    }
}

/// Asks whether the pieces in registered host memory are still there.
pub(crate) fn probe(pieces: &[Piece], touch: Touch) -> Result<(), DeviceError> {
    let mut probes = Probes::new(touch);
    for piece in pieces {
        if let Way::Direct(region, offset) = &piece.way {
            probes.add(region, *offset, piece.run.len);
        }
    }
    probes.due().ask().map_err(memory)
}

fn check_rights(
    region: &ExternalRegion,
    address: usize,
    len: u64,
    touch: Touch,
) -> Result<(), DeviceError> {
    match touch == Touch::Read || region.is_writable() {
        true => Ok(()),
        false => Err(DeviceError::ReadOnly {
            address,
            len,
            at: address,
        }),
    }
}

/// How the bytes at an address are reached, and for how many bytes that holds.
fn way_at(table: &Table, address: usize, hint: &mut usize) -> (Way, u64) {
    match table.at(address, hint) {
        Found::Inside {
            access,
            offset,
            rest,
            ..
        } => match access {
            Access::Host(region) => (Way::Direct(region.clone(), offset), rest),
            Access::Device(device, hold) => {
                let way = Way::Device {
                    device: device.clone(),
                    _hold: Arc::clone(hold),
                };
                (way, rest)
            }
        },
        Found::Outside(reach) => (Way::Unregistered, reach),
    }
}

/// Checks that a run is not null and does not wrap; an empty one may be anywhere.
fn check(run: Run) -> Result<(), DeviceError> {
    let Run { address, len } = run;
    if len == 0 {
        return Ok(());
    }
    if address == 0 {
        return Err(DeviceError::Null);
    }
    let end = usize::try_from(len)
        .ok()
        .and_then(|len| address.checked_add(len));
    match end {
        Some(_) => Ok(()),
        None => Err(DeviceError::Wraps { address, len }),
    }
}
