//! What this engine has registered: for its peers, and in the table that it shares with the store.

use crate::error::EngineError;
use parking_lot::Mutex;
use snowskin_device::{DeviceError, Kind, Registry, Run};
use snowskin_proto::{ENGINE_REGIONS_MAX, EngineAccess, EngineDescription, EngineRegion};
use snowskin_transfer::regions::{
    ForeignMemory, RegionAccess, RegionMemory, Regions, RegionsError,
};
use snowskin_transfer::transport::RegionId;
use snowskin_types::error::Failure;
use snowskin_types::id::Epoch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long operations may go on in a region that is taken back: those of peers before they are cut, and
/// then those of this process before it stays registered.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
struct Row {
    len: u64,
    region: RegionId,
    access: RegionAccess,
}

#[derive(Debug, Default)]
struct Rows {
    by_base: BTreeMap<usize, Row>,
    generation: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    registry: Registry,
    regions: Regions,
    rows: Mutex<Rows>,
}

/// A region of a device, for the data server.
#[derive(Debug)]
struct OnDevice {
    registry: Registry,
    base: usize,
    len: u64,
}

impl OnDevice {
    fn at(&self, offset: u64) -> usize {
        // The server stays inside of the region, which is inside of the address space.
        self.base + offset as usize
    }
}

impl ForeignMemory for OnDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        Ok(self.registry.read(self.at(offset), into)?)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Failure> {
        Ok(self.registry.write(self.at(offset), from)?)
    }
}

impl Table {
    pub(crate) fn new(registry: Registry, epoch: Epoch) -> Self {
        Table {
            registry,
            regions: Regions::new(epoch, ENGINE_REGIONS_MAX),
            rows: Mutex::default(),
        }
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Registers all or none.
    pub(crate) fn register(&self, runs: &[Run]) -> Result<(), EngineError> {
        if self.rows.lock().by_base.len() + runs.len() > ENGINE_REGIONS_MAX {
            let max = ENGINE_REGIONS_MAX;
            return Err(DeviceError::TooMany { max }.into());
        }
        self.registry.register_all(runs)?;
        let mut served = Vec::with_capacity(runs.len());
        for run in runs {
            match self.serve(*run) {
                Ok(row) => served.push((run.address, row)),
                Err(error) => {
                    self.undo(runs, &served);
                    return Err(error);
                }
            }
        }
        let mut rows = self.rows.lock();
        rows.by_base.extend(served);
        rows.generation += 1;
        Ok(())
    }

    /// Lets peers use what stands in the shared table.
    fn serve(&self, run: Run) -> Result<Row, EngineError> {
        let Run { address, len } = run;
        let found = self.registry.region_of(address, len);
        let found = found.ok_or(DeviceError::Unknown { address })?;
        let access = match found.writable {
            true => RegionAccess::Both,
            false => RegionAccess::Read,
        };
        let memory = match (found.kind, found.external) {
            (Kind::Host, Some(external)) => RegionMemory::External(external),
            _ => RegionMemory::Foreign(Arc::new(OnDevice {
                registry: self.registry.clone(),
                base: address,
                len,
            })),
        };
        let served = self.regions.register(memory, access);
        let region = served.map_err(|error| EngineError::System {
            step: "serve a region",
            reason: error.to_string(),
        })?;
        Ok(Row {
            len,
            region,
            access,
        })
    }

    /// Takes back what was registered of a list of which no peer knows.
    fn undo(&self, runs: &[Run], served: &[(usize, Row)]) {
        for (_, row) in served {
            if let Err(error) = self.regions.withdraw(row.region) {
                tracing::error!(%error, "a region could not be withdrawn");
            }
        }
        for run in runs {
            if let Err(error) = self.registry.unregister(run.address, Duration::ZERO) {
                tracing::error!(%error, "a registration could not be undone");
            }
        }
    }

    /// Takes a region back by its base. The waits run on the calling thread, with the time of `runtime`.
    pub(crate) fn unregister(&self, base: usize, runtime: &Handle) -> Result<(), EngineError> {
        let row = {
            let mut rows = self.rows.lock();
            let row = rows.by_base.remove(&base);
            rows.generation += 1;
            row.ok_or(EngineError::NotRegistered { address: base })?
        };
        let quiet = runtime.block_on(self.regions.deregister(row.region, PATIENCE));
        let gone = match quiet {
            Err(RegionsError::InUse { operations, .. }) => Err(DeviceError::Busy {
                address: base,
                users: operations,
            }),
            _ => self.registry.unregister(base, PATIENCE),
        };
        match gone {
            Ok(()) => Ok(()),
            // Whoever shares the table has unregistered it already.
            Err(DeviceError::Unknown { .. }) => Ok(()),
            Err(error) => {
                // It stays registered, so peers may go on as well.
                let run = Run {
                    address: base,
                    len: row.len,
                };
                match self.serve(run) {
                    Ok(row) => {
                        self.rows.lock().by_base.insert(base, row);
                    }
                    Err(error) => tracing::error!(%error, "a region in use is lost to peers"),
                }
                Err(error.into())
            }
        }
    }

    /// Takes all regions back that are left when the engine is closed, until the deadline.
    pub(crate) fn forget(&self, runtime: &Handle, deadline: Instant) -> Result<(), EngineError> {
        let rows = std::mem::take(&mut self.rows.lock().by_base);
        let mut first = Ok(());
        for (base, row) in rows {
            let left = deadline.saturating_duration_since(Instant::now());
            let quiet = runtime.block_on(self.regions.deregister(row.region, Duration::ZERO));
            let gone = match quiet {
                Err(RegionsError::InUse { operations, .. }) => Err(DeviceError::Busy {
                    address: base,
                    users: operations,
                }),
                _ => self.registry.unregister(base, left),
            };
            first = first.and(match gone {
                Ok(()) | Err(DeviceError::Unknown { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            });
        }
        first
    }

    /// What peers are told.
    pub(crate) fn describe(&self, data_port: u16) -> EngineDescription {
        let rows = self.rows.lock();
        let region = |(&base, row): (&usize, &Row)| EngineRegion {
            base: base as u64,
            len: row.len,
            region: row.region.0,
            access: match row.access {
                RegionAccess::Read => EngineAccess::Read,
                RegionAccess::Write => EngineAccess::Write,
                RegionAccess::Both => EngineAccess::Both,
            },
        };
        EngineDescription {
            epoch: self.regions.epoch(),
            data_port,
            generation: rows.generation,
            regions: rows.by_base.iter().map(region).collect(),
        }
    }
}
