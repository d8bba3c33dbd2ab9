//! The requests of a batch, merged, and cut into pieces that are moved one by one.

use crate::error::EngineError;
use crate::peers::Description;
use crate::request::Request;
use snowskin_device::Run;
use snowskin_transfer::transport::RegionId;

/// Most bytes of one piece.
pub(crate) const PIECE_BYTES_MAX: u64 = 8 << 20;
/// Most local runs of one piece.
const PIECE_RUNS_MAX: usize = 1024;

/// Bytes that lie together at the peer, and the local runs that they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) remote: u64,
    pub(crate) len: u64,
    /// The first of its local runs.
    run: usize,
}

/// Requests in their order. Neighbours that follow on each other at the peer are one chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    chunks: Vec<Chunk>,
    runs: Vec<Run>,
    pub(crate) bytes: u64,
}

impl Plan {
    pub(crate) fn new(requests: &[Request]) -> Result<Self, EngineError> {
        let mut plan = Plan::default();
        for (index, request) in requests.iter().enumerate() {
            plan.add(*request).map_err(|reason| EngineError::Request {
                index,
                local: request.local,
                remote: request.remote,
                len: request.len,
                reason,
            })?;
        }
        Ok(plan)
    }

    fn add(&mut self, request: Request) -> Result<(), &'static str> {
        let Request { local, remote, len } = request;
        if len == 0 {
            return Ok(());
        }
        if local == 0 {
            return Err("has a null local address");
        }
        let fits = usize::try_from(len)
            .ok()
            .and_then(|len| local.checked_add(len))
            .and(remote.checked_add(len));
        if fits.is_none() {
            return Err("passes the end of the address space");
        }
        self.bytes = self
            .bytes
            .checked_add(len)
            .ok_or("makes the batch longer than 64 bits can tell")?;
        let follows_at_peer = self
            .chunks
            .last()
            .is_some_and(|chunk| chunk.remote + chunk.len == remote);
        if follows_at_peer && let Some(chunk) = self.chunks.last_mut() {
            chunk.len += len;
            if let Some(run) = self.runs.last_mut()
                && run.address as u64 + run.len == local as u64
            {
                run.len += len;
                return Ok(());
            }
        } else {
            let run = self.runs.len();
            self.chunks.push(Chunk { remote, len, run });
        }
        self.runs.push(Run {
            address: local,
            len,
        });
        Ok(())
    }

    /// The first chunk that is not within regions of the peer.
    pub(crate) fn outside(&self, description: &Description) -> Option<Chunk> {
        let mut chunks = self.chunks.iter();
        chunks
            .find(|chunk| !description.covers(chunk.remote, chunk.len))
            .copied()
    }

    /// Cuts the chunks at the regions of the peer and at the bounds of a piece.
    pub(crate) fn pieces<'p>(&'p self, description: &'p Description) -> Pieces<'p> {
        Pieces {
            plan: self,
            description,
            chunk: 0,
            done: 0,
            run: 0,
            skip: 0,
        }
    }
}

/// A part of one region of the peer, and the local runs that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) region: RegionId,
    /// In the region.
    pub(crate) offset: u64,
    /// At the peer.
    pub(crate) remote: u64,
    pub(crate) len: u64,
    pub(crate) runs: Vec<Run>,
}

/// See [`Plan::pieces`].
#[derive(Debug)]
pub(crate) struct Pieces<'p> {
    plan: &'p Plan,
    description: &'p Description,
    chunk: usize,
    /// Bytes of the chunk that were given out.
    done: u64,
    run: usize,
    /// Bytes of the run that were given out.
    skip: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let chunk = *self.plan.chunks.get(self.chunk)?;
        if self.done == 0 {
            (self.run, self.skip) = (chunk.run, 0);
        }
        let remote = chunk.remote + self.done;
        // That it is inside was checked before.
        let region = self.description.region_at(remote)?;
        let offset = remote - region.base;
        let most = (chunk.len - self.done)
            .min(region.len - offset)
            .min(PIECE_BYTES_MAX);
        let mut piece = Piece {
            region: RegionId(region.region),
            offset,
            remote,
            len: 0,
            runs: Vec::new(),
        };
        while piece.len < most && piece.runs.len() < PIECE_RUNS_MAX {
            let run = self.plan.runs.get(self.run)?;
            let len = (run.len - self.skip).min(most - piece.len);
            piece.runs.push(Run {
                // Within a run, which ends inside of the address space.
                address: run.address + self.skip as usize,
                len,
            });
            piece.len += len;
            self.skip += len;
            if self.skip == run.len {
                (self.run, self.skip) = (self.run + 1, 0);
            }
        }
        self.done += piece.len;
        if self.done == chunk.len {
            (self.chunk, self.done) = (self.chunk + 1, 0);
        }
        Some(piece)
    }
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod plan_test;
