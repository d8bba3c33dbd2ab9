//! Reads and writes of registered regions, in both halves of a served connection.

use super::intake::{Check, Intake, Received, alive, encoded};
use super::outlet::Outgoing;
use super::{ConnectionError, Shared};
use crate::regions::{InUse, Way};
use crate::tcp::counters::count;
use crate::tcp::endpoint::Endpoint;
use crate::tcp::runs::{Runs, begin_run};
use snowskin_memory::error::MemoryError;
use snowskin_memory::slices::SourceSlices;
use snowskin_proto::{RangeRequest, WriteDone};
use snowskin_types::error::{Code, Failure, Stage};
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

fn unusable(error: &MemoryError, stage: Stage) -> Failure {
    Failure::new(Code::Internal, stage, error.to_string())
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
        match in_use.source() {
            Ok(source) => {
                // `source` ends with the call, and only then the use.
                let sent = self.send_range(id, source, &in_use).await;
                if sent.is_err() {
                    count(&self.shared.counters.broken);
                }
                drop(in_use);
                sent
            }
            Err(error) => self.fail(id, unusable(&error, Stage::Read)).await,
        }
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
        let mut target = match in_use.target() {
            Ok(target) => target,
            Err(error) => return self.refuse(id, unusable(&error, Stage::Write)).await,
        };
        let mut check = Check::Range(Runs::new(request.len));
        let received = self
            .receive(id, in_use.cut(), &mut target, &mut check)
            .await;
        // Nothing may touch the range when its use ends, and its use has ended when it is answered.
        drop(target);
        let gone = in_use.gone();
        drop(in_use);
        let result = match &received {
            Ok(Received::All) => {
                self.discarding = None;
                self.judge(&check)
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
