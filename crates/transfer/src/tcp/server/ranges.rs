//! Reads and writes of registered regions, in both halves of a served connection.

use super::intake::{Check, Intake, Received, alive, encoded};
use super::outlet::Outgoing;
use super::{ConnectionError, Shared};
use crate::regions::{ForeignMemory, InUse, Reached, Way};
use crate::tcp::counters::count;
use crate::tcp::endpoint::Endpoint;
use crate::tcp::runs::{Runs, begin_run};
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_proto::{RangeRequest, WriteDone};
use snowskin_types::error::{Code, Failure, Stage};
use snowskin_types::limits::PIECE_BYTES;
use std::io;

impl<E: Endpoint> Shared<E> {
    /// Begins to use a range, when everything about it is as it should be.
    async fn begin(&self, request: &RangeRequest, way: Way) -> Result<InUse, Failure> {
        let stage = match way {
            Way::Read => Stage::Read,
            Way::Write => Stage::Write,
        };
        let Some(regions) = self.endpoint.regions() else {
            let text = "this process has registered no memory for one-sided access";
            return Err(Failure::new(Code::SegmentNotFound, stage, text));
        };
        let in_use = regions.begin(request, way).await?;
        if in_use.memory().is_segment(self.endpoint.segment()) {
            // A mistake of the process: objects are reached by their names and versions only.
            tracing::error!("the segment of the objects was registered as a region");
            return Err(in_use.gone());
        }
        Ok(in_use)
    }
}

/// Bytes that are staged at once for memory that is reached by copies: whole pieces, so that each
/// chunk can be a run of its own.
const STAGING_BYTES: usize = PIECE_BYTES as usize;

fn staging_len(len: u64) -> usize {
    usize::try_from(len).map_or(STAGING_BYTES, |len| len.min(STAGING_BYTES))
}

/// As much of the staging memory as is left to move.
fn chunk_of(staging: &mut [u8], left: u64) -> &mut [u8] {
    let len = staging_len(left).min(staging.len());
    &mut staging[..len]
}

impl<E: Endpoint> Outgoing<'_, E> {
    pub(super) async fn read_range(
        &mut self,
        id: u64,
        request: RangeRequest,
    ) -> Result<(), ConnectionError> {
        count(&self.shared.counters.reads);
        count(&self.shared.counters.range_reads);
        let in_use = match self.shared.begin(&request, Way::Read).await {
            Ok(in_use) => in_use,
            Err(failure) => return self.fail(id, failure).await,
        };
        // What reaches the range ends with the calls, and only then the use.
        let sent = match in_use.source() {
            Ok(Reached::Direct(source)) => self.send_range(id, source, &in_use).await,
            Ok(Reached::ByCopy(memory)) => self.send_copies(id, &request, memory, &in_use).await,
            Err(failure) => return self.fail(id, failure).await,
        };
        if sent.is_err() {
            count(&self.shared.counters.broken);
        }
        drop(in_use);
        sent
    }

    /// Sends runs of memory that is reached by copies, one chunk after the other.
    async fn send_copies(
        &mut self,
        id: u64,
        request: &RangeRequest,
        memory: &dyn ForeignMemory,
        in_use: &InUse,
    ) -> Result<(), ConnectionError> {
        let mut staging = vec![0; staging_len(request.len)];
        let mut done = 0;
        while done < request.len {
            if in_use.cut().is_cancelled() {
                count(&self.shared.counters.cut);
                return self.fail(id, in_use.gone()).await;
            }
            self.take_answers();
            let chunk = chunk_of(&mut staging, request.len - done);
            if let Err(failure) = memory.read(request.offset + done, chunk) {
                return self.fail(id, failure).await;
            }
            let mut source = SourceSlices::of(chunk);
            done += source.remaining();
            let len = begin_run(&mut self.out.bytes, id, &source)
                .map_err(|error| ConnectionError::Broken(io::Error::other(error)))?;
            self.payload(&mut source, len, in_use.cut()).await?;
            tokio::task::yield_now().await;
        }
        self.flush().await
    }

    /// Sends runs straight from the region, with answers of other requests between their frames.
    async fn send_range(
        &mut self,
        id: u64,
        mut source: SourceSlices<'static>,
        in_use: &InUse,
    ) -> Result<(), ConnectionError> {
        while source.remaining() > 0 {
            if in_use.cut().is_cancelled() {
                count(&self.shared.counters.cut);
                return self.fail(id, in_use.gone()).await;
            }
            self.take_answers();
            let len = begin_run(&mut self.out.bytes, id, &source)
                .map_err(|error| ConnectionError::Broken(io::Error::other(error)))?;
            self.payload(&mut source, len, in_use.cut()).await?;
            tokio::task::yield_now().await;
        }
        self.flush().await
    }
}

impl<E: Endpoint> Intake<'_, E> {
    pub(super) async fn write_range(
        &mut self,
        id: u64,
        request: RangeRequest,
    ) -> Result<(), ConnectionError> {
        // A writer that has broken the connection off may have written the range again by now; what is
        // still buffered of this connection must not come after that.
        self.stream.peer_addr()?;
        let shared = self.shared;
        count(&shared.counters.writes);
        count(&shared.counters.range_writes);
        self.discarding = Some((id, shared.options.drain_bytes_max.min(request.len)));
        let begin = shared.begin(&request, Way::Write);
        let interval = shared.options.waiting_interval;
        let in_use = match alive(id, &self.answers, interval, begin).await {
            Ok(in_use) => in_use,
            Err(failure) => return self.refuse(id, failure).await,
        };
        // It may have been broken off during the wait.
        self.stream.peer_addr()?;
        let mut check = Check::Range(Runs::new(request.len));
        let mut uncopied = Ok(());
        let received = match in_use.target() {
            Ok(Reached::Direct(mut target)) => {
                self.receive(id, in_use.cut(), &mut target, &mut check)
                    .await
            }
            Ok(Reached::ByCopy(memory)) => {
                let copy = |offset, bytes: &[u8]| {
                    if uncopied.is_ok() {
                        uncopied = memory.write(offset, bytes);
                    }
                };
                self.receive_copies(id, &request, &in_use, &mut check, copy)
                    .await
            }
            Err(failure) => return self.refuse(id, failure).await,
        };
        // Nothing may touch the range when its use ends, and its use has ended when it is answered.
        let gone = in_use.gone();
        drop(in_use);
        let result = match &received {
            Ok(Received::All) => {
                self.discarding = None;
                self.judge(&check).and(uncopied)
            }
            Ok(Received::GivenUp) => {
                self.discarding = None;
                let text = "the write was given up before all bytes came";
                Err(Failure::new(Code::InvalidWrite, Stage::Write, text))
            }
            Ok(Received::Cut) => {
                count(&shared.counters.cut);
                Err(gone)
            }
            Err(_) => Ok(()),
        };
        if !matches!(received, Ok(Received::All)) {
            count(&shared.counters.broken);
        }
        let received = received?;
        match result {
            Ok(()) => self.answer(encoded(id, &WriteDone(Ok(())))).await?,
            Err(failure) => self.refuse(id, failure).await?,
        }
        if let Received::Cut = received {
            self.discard(id).await?;
        }
        Ok(())
    }

    /// Receives the payload for memory that is reached by copies, one chunk after the other. A copy
    /// that fails does not end the payload, which has to be read anyway.
    async fn receive_copies(
        &mut self,
        id: u64,
        request: &RangeRequest,
        in_use: &InUse,
        check: &mut Check,
        mut copy: impl FnMut(u64, &[u8]),
    ) -> Result<Received, ConnectionError> {
        let mut staging = vec![0; staging_len(request.len)];
        let mut done = 0;
        while done < request.len {
            let chunk = chunk_of(&mut staging, request.len - done);
            let mut target = TargetSlices::of(chunk);
            match self.receive(id, in_use.cut(), &mut target, check).await? {
                Received::All => {}
                other => return Ok(other),
            }
            drop(target);
            copy(request.offset + done, chunk);
            done += chunk.len() as u64;
        }
        Ok(Received::All)
    }

    fn judge(&self, check: &Check) -> Result<(), Failure> {
        let Check::Range(runs) = check else {
            return Ok(());
        };
        runs.judge().map(|_| ()).map_err(|wrong| {
            let failures = &self.shared.counters.checksum_failures;
            failures.fetch_add(wrong, std::sync::atomic::Ordering::Relaxed);
            Failure {
                stage: Stage::Write,
                ..runs.mismatch(wrong)
            }
        })
    }
}
