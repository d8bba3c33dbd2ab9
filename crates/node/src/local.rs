//! Reads and writes by callers of this process: memory copies under the same rules as over a socket.
//!
//! Everything goes through the same events of the store, so that leases, pins, one-shot writes and the
//! order of publish and retract hold alike. Calls block the calling thread and need no runtime.

use crate::config::Verify;
use crate::endpoint::unanswered;
use crate::engine::Engine;
use crate::guard::{Started, Tell, WriteGuard};
use crate::metrics::Tally;
use snowskin_memory::error::MemoryError;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_store::event::Filled;
use snowskin_transfer::transport::Done;
use snowskin_types::access::{Extent, ReadRequest, WriteRequest};
use snowskin_types::checksum::{PieceHasher, PieceSums, piece_len};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::PIECE_BYTES;
use snowskin_types::object::Place;
use snowskin_types::time::{Millis, Now};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

/// Between so many bytes a copy looks at its deadline and tells its progress.
const STEP_PIECES: u64 = 256;

/// The way to a node of the same process. Clones are the same node; calls after its shutdown fail with
/// `UNAVAILABLE_IN_CURRENT_STATUS`.
///
/// Deadlines are moments of [`snowskin_runtime::clock::SystemClock`].
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) engine: Arc<Engine>,
    pub(crate) verify: Verify,
}

/// A write whose bytes are in the segment and which waits to be published. Dropping it leaves the
/// write to itself: it is published all the same, only nobody hears of it.
#[derive(Debug)]
#[must_use = "the write has succeeded only when its answer says so"]
pub struct PendingWrite {
    state: Pending,
}

#[derive(Debug)]
enum Pending {
    Answered(Result<(), Failure>),
    Waiting {
        engine: Arc<Engine>,
        guard: WriteGuard,
        answer: Receiver<Result<(), Failure>>,
    },
}

impl PendingWrite {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The node's; `RPC_TIMEOUT` at the deadline, and then nobody knows whether it was published.
    pub fn wait(self, deadline: Now) -> Result<(), Failure> {
        match self.state {
            Pending::Answered(result) => result,
            Pending::Waiting {
                engine,
                guard,
                answer,
            } => {
                let result = wait(&engine, &answer, deadline, Stage::Publish)?;
                // Only now: its end would say that the writer has gone.
                drop(guard);
                result.unwrap_or_else(|| Err(unanswered()))
            }
        }
    }
}

impl Handle {
    /// Who this is. Reads and writes for this node and epoch may come here instead of a socket.
    pub fn place(&self) -> &Place {
        self.engine.place()
    }

    /// Whether a place that the master named is this node in this process life.
    pub fn is(&self, place: &Place) -> bool {
        let own = self.engine.place();
        own.node == place.node && own.epoch == place.epoch
    }

    /// Stores one version and waits until it is published. The source is left at its position.
    ///
    /// # Errors
    /// As over a socket; `RPC_TIMEOUT` at the deadline.
    pub fn write(
        &self,
        request: &WriteRequest,
        source: &mut SourceSlices<'_>,
        deadline: Now,
    ) -> Result<(), Failure> {
        self.start_write(request, source, deadline)?.wait(deadline)
    }

    /// Copies one version in, waiting for space if it must, and does not wait for the publish: for
    /// batches, which start all their writes and then wait for each. The source is quiet when this
    /// returns, and left at its position.
    ///
    /// # Errors
    /// As over a socket; `RPC_TIMEOUT` at the deadline.
    pub fn start_write(
        &self,
        request: &WriteRequest,
        source: &mut SourceSlices<'_>,
        deadline: Now,
    ) -> Result<PendingWrite, Failure> {
        if source.remaining() < request.size {
            let text = format!("{} bytes of {} are given", source.remaining(), request.size);
            let failure = Failure::new(Code::InvalidParams, Stage::Write, text);
            return Err(failure.with_key(&request.name.key));
        }
        let mut request = request.clone();
        let left = self.engine.now().until(deadline);
        request.patience = request.patience.min(left);
        let (size, sums) = (request.size, request.sums.clone());
        let (tell, told) = sync_channel(1);
        let guard = WriteGuard::begin(&self.engine, request, Tell::Thread(tell));
        let extents = match wait(&self.engine, &told, deadline, Stage::Write)? {
            Some(Started::Granted(extents)) => extents,
            Some(Started::Answered(result)) => {
                let state = Pending::Answered(result);
                return Ok(PendingWrite { state });
            }
            None => return Err(self.engine.stopping(Stage::Write)),
        };
        let guard = guard.granted(extents);
        let before = source.remaining();
        let filled = self.fill(&guard, source, size, &sums, deadline);
        source.rewind(before - source.remaining());
        // Should that have failed, dropping the guard gives the extents back.
        let filled = filled?;
        Tally::add(&self.engine.tally.local_bytes_in, size);
        let (tell, answer) = sync_channel(1);
        guard.filled(filled, Tell::Thread(tell));
        let state = Pending::Waiting {
            engine: Arc::clone(&self.engine),
            guard,
            answer,
        };
        Ok(PendingWrite { state })
    }

    /// Copies piece by piece and verifies what now stands in the segment.
    fn fill(
        &self,
        guard: &WriteGuard,
        source: &mut SourceSlices<'_>,
        size: u64,
        sums: &PieceSums,
        deadline: Now,
    ) -> Result<Filled, Failure> {
        let segment = self.engine.memory().segment();
        let broken =
            |error: MemoryError| Failure::new(Code::Internal, Stage::Write, error.to_string());
        let extents = guard.grant();
        let cut = guard.cut_token();
        let mut at = Cursor::new(&extents);
        for (index, sum) in (0..).zip(&sums.0) {
            if index % STEP_PIECES == 0 {
                if cut.is_cancelled() {
                    return Ok(Filled::Broken);
                }
                if self.engine.now() >= deadline {
                    return Err(late(&self.engine, Stage::Write));
                }
            }
            let runs = at.take(piece_len(size, index));
            let mut target = segment.target(runs.iter().copied()).map_err(broken)?;
            source.copy_to(&mut target);
            drop(target);
            if self.verify == Verify::Writes {
                let copied = segment.source(runs).map_err(broken)?;
                if checksum(&copied) != Some(*sum) {
                    Tally::one(&self.engine.tally.local_checksum_failures);
                    return Ok(Filled::Corrupt);
                }
            }
        }
        Ok(Filled::Sound)
    }

    /// Reads a range of one version, verifying every piece it touches. The target is left at its
    /// position whatever happens; it must have room for the range, cut to the object.
    ///
    /// # Errors
    /// As over a socket; `CHECKSUM_MISMATCH` when stored bytes are damaged, which the node then
    /// follows up by itself.
    pub fn read(
        &self,
        request: &ReadRequest,
        target: &mut TargetSlices<'_>,
        deadline: Now,
    ) -> Result<Done, Failure> {
        let pin = self.engine.start_read(request.clone())?;
        let grant = &pin.grant;
        if target.remaining() < grant.len {
            let text = format!(
                "the target has room for {} bytes, the range has {}",
                target.remaining(),
                grant.len
            );
            let failure = Failure::new(Code::BufferOverflow, Stage::Read, text);
            return Err(failure.with_key(&request.name.key));
        }
        let before = target.remaining();
        let copied = self.copy_out(&pin, target, deadline);
        target.rewind(before - target.remaining());
        let done = Done {
            bytes: grant.len,
            shape: Some(grant.shape),
        };
        drop(pin);
        match copied {
            Ok(()) => {
                Tally::add(&self.engine.tally.local_bytes_out, done.bytes);
                Ok(done)
            }
            Err(failure) => {
                if failure.code == Code::ChecksumMismatch {
                    Tally::one(&self.engine.tally.local_checksum_failures);
                    self.engine.found_damaged(request);
                }
                Err(failure.with_key(&request.name.key))
            }
        }
    }

    /// The bytes cannot change while they are pinned, so a piece is verified where it stands, which
    /// also brings it into the cache, and then copied.
    fn copy_out(
        &self,
        pin: &crate::guard::ReadPin,
        target: &mut TargetSlices<'_>,
        deadline: Now,
    ) -> Result<(), Failure> {
        let segment = self.engine.memory().segment();
        let internal = |text: String| Failure::new(Code::Internal, Stage::Read, text);
        let grant = &pin.grant;
        let (from, to) = (grant.offset, grant.offset + grant.len);
        let first = from / PIECE_BYTES;
        let mut at = Cursor::new(&grant.extents);
        at.take(first * PIECE_BYTES);
        for index in first..=(to - 1) / PIECE_BYTES {
            if index % STEP_PIECES == 0 && index > first {
                if self.engine.now() >= deadline {
                    return Err(late(&self.engine, Stage::Read));
                }
                if pin.cut.is_cancelled() {
                    let text = "the node cut the read";
                    return Err(Failure::new(Code::TransferFail, Stage::Read, text));
                }
                pin.moved();
            }
            let start = index * PIECE_BYTES;
            let runs = at.take(piece_len(grant.shape.size, index));
            let list = segment.source(runs);
            let mut piece = list.map_err(|e| internal(e.to_string()))?;
            let expected = usize::try_from(index)
                .ok()
                .and_then(|i| grant.sums.0.get(i));
            if expected.is_none() || checksum(&piece) != expected.copied() {
                let text = format!(
                    "the stored bytes {start}+{} do not have their checksum",
                    piece.remaining()
                );
                let failure = Failure::new(Code::ChecksumMismatch, Stage::Verify, text);
                return Err(failure.with_peer(&*self.place().address));
            }
            piece.advance(from.saturating_sub(start));
            let behind = (start + piece_len(grant.shape.size, index)).saturating_sub(to);
            copy_some(&mut piece, target, behind);
        }
        Ok(())
    }
}

/// Copies a piece but for its last `behind` bytes.
fn copy_some(piece: &mut SourceSlices<'_>, target: &mut TargetSlices<'_>, behind: u64) {
    if behind == 0 {
        piece.copy_to(target);
        return;
    }
    let mut left = piece.remaining().saturating_sub(behind);
    while left > 0 {
        let took = piece.with_slices(left, |slices| {
            slices
                .iter()
                .map(|slice| target.fill_from(slice) as u64)
                .sum::<u64>()
        });
        if took == 0 {
            return;
        }
        piece.advance(took);
        left -= took;
    }
}

/// Checksum of one piece.
fn checksum(piece: &SourceSlices<'_>) -> Option<u64> {
    let mut hasher = PieceHasher::default();
    piece.visit(|run| hasher.update(run));
    hasher.finish().0.first().copied()
}

/// Waits for a message of the engine; `None` when none will come.
fn wait<T>(
    engine: &Engine,
    told: &Receiver<T>,
    deadline: Now,
    stage: Stage,
) -> Result<Option<T>, Failure> {
    let left = engine.now().until(deadline);
    // One tick more than none, so that what is there already is taken at any deadline.
    match told.recv_timeout(left.max(Millis(1)).duration()) {
        Ok(message) => Ok(Some(message)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => Err(late(engine, stage)),
    }
}

fn late(engine: &Engine, stage: Stage) -> Failure {
    Tally::one(&engine.tally.local_deadline_missed);
    let text = "the deadline passed";
    Failure::new(Code::RpcTimeout, stage, text).with_peer(&*engine.place().address)
}

/// Walks through extents by lengths.
struct Cursor<'e> {
    extents: &'e [Extent],
    /// Bytes of the first extent that are behind.
    within: u64,
}

impl<'e> Cursor<'e> {
    fn new(extents: &'e [Extent]) -> Self {
        Cursor { extents, within: 0 }
    }

    /// The runs of the next `len` bytes.
    fn take(&mut self, len: u64) -> Vec<(u64, u64)> {
        let (mut left, mut runs) = (len, Vec::with_capacity(1));
        while left > 0
            && let Some((first, rest)) = self.extents.split_first()
        {
            let run = (first.len - self.within).min(left);
            if run > 0 {
                runs.push((first.offset + self.within, run));
            }
            left -= run;
            self.within += run;
            if self.within == first.len {
                self.extents = rest;
                self.within = 0;
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_takes_extents_apart_at_any_length() {
        let extents = [(100, 10), (0, 5), (50, 20)].map(|(offset, len)| Extent { offset, len });
        let mut at = Cursor::new(&extents);
        assert_eq!(at.take(8), [(100, 8)]);
        assert_eq!(at.take(9), [(108, 2), (0, 5), (50, 2)]);
        assert_eq!(at.take(18), [(52, 18)]);
        assert!(at.take(1).is_empty());
    }
}
