//! The copies: between plain bytes and pieces of any kind.

use std::sync::atomic::Ordering;

use snowskin_memory::probe::Touch;
use snowskin_memory::slices::{SourceSlices, TargetSlices};

use crate::driver::{self, Device, Fetch, Store};
use crate::error::DeviceError;
use crate::kernel::{Refused, memory};
use crate::registry::Inner;
use crate::resolve::{Piece, Way};

impl Inner {
    /// Copies pieces, one after the other, into the front of `into`, which has room for them.
    pub(crate) fn fetch(&self, pieces: &[Piece], into: &mut [u8]) -> Result<(), DeviceError> {
        let mut room = into;
        let mut pieces = pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            match &piece.way {
                Way::Direct(region, offset) => {
                    let bytes = split(&mut room, piece)?;
                    let probed = region.probe(*offset, piece.run.len, Touch::Read);
                    probed.map_err(memory)?;
                    let mut source = region.source(*offset, piece.run.len).map_err(memory)?;
                    source.copy_to(&mut TargetSlices::of(bytes));
                }
                Way::Device { device, .. } => {
                    let mut parts = vec![fetch_of(piece, &mut room)?];
                    while let Some(next) = pieces.next_if(|next| is_on(next, device)) {
                        parts.push(fetch_of(next, &mut room)?);
                    }
                    self.fetch_from(device, &mut parts)?;
                }
                Way::Unregistered => {
                    let bytes = split(&mut room, piece)?;
                    self.fetch_unregistered(piece, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Copies the front of `from` into pieces, one after the other.
    pub(crate) fn store(&self, pieces: &[Piece], from: &[u8]) -> Result<(), DeviceError> {
        let mut rest = from;
        let mut pieces = pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            match &piece.way {
                Way::Direct(region, offset) => {
                    let bytes = split_shared(&mut rest, piece)?;
                    let probed = region.probe(*offset, piece.run.len, Touch::Write);
                    probed.map_err(memory)?;
                    let mut target = region.target(*offset, piece.run.len).map_err(memory)?;
                    SourceSlices::of(bytes).copy_to(&mut target);
                }
                Way::Device { device, .. } => {
                    let mut parts = vec![store_of(piece, &mut rest)?];
                    while let Some(next) = pieces.next_if(|next| is_on(next, device)) {
                        parts.push(store_of(next, &mut rest)?);
                    }
                    self.store_to(device, &parts)?;
                }
                Way::Unregistered => {
                    let bytes = split_shared(&mut rest, piece)?;
                    self.store_unregistered(piece, bytes)?;
                }
            }
        }
        Ok(())
    }

    fn fetch_unregistered(&self, piece: &Piece, into: &mut [u8]) -> Result<(), DeviceError> {
        let address = piece.run.address;
        self.count_unregistered(piece.run);
        let Err(error) = self.kernel.read(address, into, Refused::Fail) else {
            return Ok(());
        };
        let DeviceError::NotMapped { .. } = error else {
            return Err(error);
        };
        match self.device_behind(piece) {
            Some(device) => self.fetch_from(&device, &mut [Fetch { address, into }]),
            None => self.kernel.read(address, into, Refused::LookForDevices),
        }
    }

    fn store_unregistered(&self, piece: &Piece, from: &[u8]) -> Result<(), DeviceError> {
        let address = piece.run.address;
        self.count_unregistered(piece.run);
        let Err(error) = self.kernel.write(address, from, Refused::Fail) else {
            return Ok(());
        };
        let DeviceError::NotMapped { .. } = error else {
            return Err(error);
        };
        match self.device_behind(piece) {
            Some(device) => self.store_to(&device, &[Store { address, from }]),
            None => self.kernel.write(address, from, Refused::LookForDevices),
        }
    }

    fn fetch_from(&self, device: &Device, parts: &mut [Fetch<'_>]) -> Result<(), DeviceError> {
        device.fetch(parts)?;
        let bytes = parts.iter().map(|part| part.into.len() as u64).sum();
        let counter = &self.counters.device_bytes_out;
        counter.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn store_to(&self, device: &Device, parts: &[Store<'_>]) -> Result<(), DeviceError> {
        device.store(parts)?;
        let bytes = parts.iter().map(|part| part.from.len() as u64).sum();
        let counter = &self.counters.device_bytes_in;
        counter.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The device that owns memory which the processor cannot reach and nobody registered.
    fn device_behind(&self, piece: &Piece) -> Option<Device> {
        driver::owner_of(&self.drivers.loaded(), piece.run.address)
    }
}

fn is_on(piece: &Piece, device: &Device) -> bool {
    matches!(&piece.way, Way::Device { device: other, .. } if other.is_same(device))
}

fn fetch_of<'b>(piece: &Piece, room: &mut &'b mut [u8]) -> Result<Fetch<'b>, DeviceError> {
    Ok(Fetch {
        address: piece.run.address,
        into: split(room, piece)?,
    })
}

fn store_of<'b>(piece: &Piece, rest: &mut &'b [u8]) -> Result<Store<'b>, DeviceError> {
    Ok(Store {
        address: piece.run.address,
        from: split_shared(rest, piece)?,
    })
}

/// Takes the bytes of a piece off the front.
fn split<'b>(room: &mut &'b mut [u8], piece: &Piece) -> Result<&'b mut [u8], DeviceError> {
    let short = no_room(piece, room.len());
    let bytes = usize::try_from(piece.run.len)
        .ok()
        .and_then(|len| room.split_off_mut(..len));
    bytes.ok_or(short)
}

fn split_shared<'b>(rest: &mut &'b [u8], piece: &Piece) -> Result<&'b [u8], DeviceError> {
    let short = no_room(piece, rest.len());
    let bytes = usize::try_from(piece.run.len)
        .ok()
        .and_then(|len| rest.split_off(..len));
    bytes.ok_or(short)
}

fn no_room(piece: &Piece, room: usize) -> DeviceError {
    DeviceError::NoRoom {
        wanted: piece.run.len,
        room: room as u64,
    }
}
