//! What a transfer needs: bytes to send, and room to receive, wherever the engine's memory is.

use std::time::Duration;

use snowskin_memory::probe::Touch;
use snowskin_memory::region::ExternalRegion;
use snowskin_memory::scattered::Scattered;

use crate::error::DeviceError;
use crate::kernel::memory;
use crate::registry::{Registry, Run};
use crate::resolve::{Piece, Way, probe};
use crate::staging::Wait;

/// Bytes to send. Direct ones are the engine's memory itself; the others were copied.
#[derive(Debug)]
pub struct Gather {
    list: Scattered,
}

impl Gather {
    /// The bytes in order.
    pub fn scattered(&self) -> &Scattered {
        &self.list
    }
}

/// Room to receive. Direct bytes are at their place when they are received; the others when
/// [`Scatter::finish`] has copied them. Dropping it instead leaves the others' memory as it was.
#[derive(Debug)]
pub struct Scatter {
    registry: Registry,
    list: Scattered,
    /// The pieces that are staged, with their offset among all bytes, in order.
    staged: Vec<(u64, Piece)>,
    /// The bytes of those pieces, one after the other.
    staging: Option<ExternalRegion>,
}

impl Scatter {
    /// The room in order.
    pub fn scattered(&self) -> &Scattered {
        &self.list
    }

    /// Copies what was staged of the first `len` bytes, those that were received, to its place. Every
    /// list over the room must be gone.
    ///
    /// # Errors
    /// When there is less room, memory that was not registered is not there, or a driver refuses.
    pub fn finish(self, len: u64) -> Result<(), DeviceError> {
        let room = self.list.len();
        if len > room {
            let wanted = len;
            return Err(DeviceError::NoRoom { wanted, room });
        }
        let Some(staging) = &self.staging else {
            return Ok(());
        };
        let received = |(at, mut piece): (u64, Piece)| {
            piece.run.len = piece.run.len.min(len.checked_sub(at)?);
            (piece.run.len > 0).then_some(piece)
        };
        let pieces: Vec<Piece> = self.staged.into_iter().map_while(received).collect();
        let bytes = pieces.iter().map(|piece| piece.run.len).sum();
        let source = staging.source(0, bytes).map_err(memory)?;
        let mut result = Ok(());
        // One run: staging is contiguous.
        source.visit(|run| result = self.registry.inner.store(&pieces, run));
        self.registry.inner.count_refusal(result)
    }
}

impl Registry {
    /// Makes bytes to send from runs, in order. Runs in registered host memory are sent from there;
    /// runs on devices and, unless the registry is strict, unregistered ones are copied now.
    ///
    /// # Errors
    /// When memory is not mapped, or not any more, or if strict not registered, when more bytes
    /// must be copied than can ever be staged, when staging memory does not become free in time, or
    /// when a driver refuses.
    pub fn gather(&self, runs: &[Run]) -> Result<Gather, DeviceError> {
        self.inner
            .count_refusal(self.gather_with(runs, Wait::Patiently))
    }

    /// As [`Registry::gather`], for a call that has only so much time left.
    ///
    /// # Errors
    /// As [`Registry::gather`].
    pub fn gather_within(&self, runs: &[Run], left: Duration) -> Result<Gather, DeviceError> {
        self.inner
            .count_refusal(self.gather_with(runs, Wait::Within(left)))
    }

    /// As [`Registry::gather`], but never waits for staging memory: a batch that holds staging memory
    /// itself must carry out what it has when [`DeviceError::StagingFull`] tells so, and then go on.
    ///
    /// # Errors
    /// As [`Registry::gather`].
    pub fn gather_now(&self, runs: &[Run]) -> Result<Gather, DeviceError> {
        self.gather_with(runs, Wait::Never)
    }

    /// Makes room to receive into runs, in order.
    ///
    /// # Errors
    /// As [`Registry::gather`], and when memory is read-only.
    pub fn scatter(&self, runs: &[Run]) -> Result<Scatter, DeviceError> {
        self.inner
            .count_refusal(self.scatter_with(runs, Wait::Patiently))
    }

    /// As [`Registry::scatter`], for a call that has only so much time left.
    ///
    /// # Errors
    /// As [`Registry::gather`].
    pub fn scatter_within(&self, runs: &[Run], left: Duration) -> Result<Scatter, DeviceError> {
        self.inner
            .count_refusal(self.scatter_with(runs, Wait::Within(left)))
    }

    /// As [`Registry::scatter`], without waiting, as [`Registry::gather_now`].
    ///
    /// # Errors
    /// As [`Registry::gather`].
    pub fn scatter_now(&self, runs: &[Run]) -> Result<Scatter, DeviceError> {
        self.scatter_with(runs, Wait::Never)
    }

    /// Copies memory of any kind.
    ///
    /// # Errors
    /// As [`Registry::gather`].
    pub fn read(&self, address: usize, into: &mut [u8]) -> Result<(), DeviceError> {
        let run = Run {
            address,
            len: into.len() as u64,
        };
        let pieces = self.inner.pieces(&[run], Touch::Read);
        let result = pieces.and_then(|pieces| self.inner.fetch(&pieces, into));
        self.inner.count_refusal(result)
    }

    /// Copies into memory of any kind.
    ///
    /// # Errors
    /// As [`Registry::gather`].
    pub fn write(&self, address: usize, from: &[u8]) -> Result<(), DeviceError> {
        let run = Run {
            address,
            len: from.len() as u64,
        };
        let pieces = self.inner.pieces(&[run], Touch::Write);
        let result = pieces.and_then(|pieces| self.inner.store(&pieces, from));
        self.inner.count_refusal(result)
    }

    fn gather_with(&self, runs: &[Run], wait: Wait) -> Result<Gather, DeviceError> {
        if let Some(list) = self.inner.direct(runs, Touch::Read)? {
            return Ok(Gather { list });
        }
        let pieces = self.inner.pieces(runs, Touch::Read)?;
        probe(&pieces, Touch::Read)?;
        let plan = Plan::new(&pieces, Stage::What);
        let mut lease = self.inner.staging.lease(plan.bytes, wait)?;
        let copied: Vec<Piece> = plan.staged.into_iter().map(|(_, piece)| piece).collect();
        self.inner.fetch(&copied, lease.bytes())?;
        let list = assemble(&pieces, &lease.into_region()?, Stage::What)?;
        Ok(Gather { list })
    }

    fn scatter_with(&self, runs: &[Run], wait: Wait) -> Result<Scatter, DeviceError> {
        let registry = self.clone();
        let direct = self.inner.direct(runs, Touch::Write)?;
        if let Some(list) = direct.filter(|list| list.overlap().is_none()) {
            return Ok(Scatter {
                registry,
                list,
                staged: Vec::new(),
                staging: None,
            });
        }
        let pieces = self.inner.pieces(runs, Touch::Write)?;
        probe(&pieces, Touch::Write)?;
        // Bytes cannot be received twice into one place, but they can be copied there one by one.
        let stage = if overlap(&pieces) {
            Stage::All
        } else {
            Stage::What
        };
        let plan = Plan::new(&pieces, stage);
        let staging = self.inner.staging.lease(plan.bytes, wait)?.into_region()?;
        Ok(Scatter {
            registry,
            list: assemble(&pieces, &staging, stage)?,
            staged: plan.staged,
            staging: Some(staging),
        })
    }
}

/// Which pieces are staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Those that must be.
    What,
    /// All of them.
    All,
}

impl Stage {
    fn takes(self, piece: &Piece) -> bool {
        self == Stage::All || !matches!(piece.way, Way::Direct(..))
    }
}

/// The pieces to stage, with their offset among all bytes.
struct Plan {
    staged: Vec<(u64, Piece)>,
    bytes: u64,
}

impl Plan {
    fn new(pieces: &[Piece], stage: Stage) -> Self {
        let mut plan = Self {
            staged: Vec::with_capacity(pieces.len()),
            bytes: 0,
        };
        let mut at = 0u64;
        for piece in pieces {
            if stage.takes(piece) {
                plan.staged.push((at, piece.clone()));
                // More than there can be is refused when it is leased.
                plan.bytes = plan.bytes.saturating_add(piece.run.len);
            }
            at = at.saturating_add(piece.run.len);
        }
        plan
    }
}

/// Lists direct pieces where they are and staged ones in the staging memory.
fn assemble(
    pieces: &[Piece],
    staging: &ExternalRegion,
    stage: Stage,
) -> Result<Scattered, DeviceError> {
    let mut list = Scattered::with_capacity(pieces.len());
    let mut staged = 0;
    for piece in pieces {
        let len = piece.run.len;
        match &piece.way {
            Way::Direct(region, offset) if !stage.takes(piece) => list.push(region, *offset, len),
            _ => {
                staged += len;
                list.push(staging, staged - len, len)
            }
        }
        .map_err(memory)?;
    }
    Ok(list)
}

/// Whether two pieces that would be received directly have a byte in common.
fn overlap(pieces: &[Piece]) -> bool {
    let mut direct: Vec<Run> = pieces
        .iter()
        .filter(|piece| !Stage::What.takes(piece))
        .map(|piece| piece.run)
        .collect();
    direct.sort_unstable_by_key(|run| run.address);
    direct
        .windows(2)
        .any(|pair| pair[0].address as u64 + pair[0].len > pair[1].address as u64)
}
