//! The node as the data server sees it.

use crate::config::Verify;
use crate::engine::Engine;
use crate::guard::{ReadPin, Started, Tell, WriteGuard};
use snowskin_memory::segment::Segment;
use snowskin_runtime::spawn::Cancel;
use snowskin_store::event;
use snowskin_transfer::tcp::endpoint::{
    Endpoint, Filled, ReadGrant, ReadTicket, WriteStart, WriteTicket,
};
use snowskin_types::access::{Extent, ReadRequest, WriteRequest};
use snowskin_types::error::{Code, Failure, Stage};
use std::sync::Arc;
use tokio::sync::oneshot;

/// See the module.
#[derive(Debug)]
pub(crate) struct NodeEndpoint {
    pub(crate) engine: Arc<Engine>,
    pub(crate) verify: Verify,
}

impl Endpoint for NodeEndpoint {
    type Write = WriteGuard;
    type Read = ReadPin;

    fn segment(&self) -> &Segment {
        self.engine.memory().segment()
    }

    fn verifies_writes(&self) -> bool {
        self.verify == Verify::Writes
    }

    async fn write_start(&self, request: WriteRequest) -> WriteStart<WriteGuard> {
        let (tell, told) = oneshot::channel();
        let guard = WriteGuard::begin(&self.engine, request, Tell::Task(tell));
        match told.await {
            Ok(Started::Granted(extents)) => WriteStart::Granted(guard.granted(extents)),
            Ok(Started::Answered(result)) => WriteStart::Answered(result),
            Err(_) => WriteStart::Answered(Err(self.engine.stopping(Stage::Write))),
        }
    }

    async fn read_start(&self, request: ReadRequest) -> Result<ReadPin, Failure> {
        self.engine.start_read(request)
    }

    fn found_damaged(&self, request: &ReadRequest) {
        self.engine.found_damaged(request);
    }
}

impl WriteTicket for WriteGuard {
    fn extents(&self) -> Arc<[Extent]> {
        self.grant()
    }

    fn cut(&self) -> Cancel {
        self.cut_token()
    }

    async fn end(self, filled: Filled) -> Result<(), Failure> {
        let (tell, told) = oneshot::channel();
        let filled = match filled {
            Filled::Sound => event::Filled::Sound,
            Filled::Corrupt => event::Filled::Corrupt,
            Filled::Broken => event::Filled::Broken,
        };
        self.filled(filled, Tell::Task(tell));
        // The guard lives until the answer: dropping this future tells that the writer has gone.
        told.await.unwrap_or_else(|_| Err(unanswered()))
    }
}

/// The result of a write that the store does not answer.
pub(crate) fn unanswered() -> Failure {
    let text = "the write broke off before all its bytes were there";
    Failure::new(Code::InvalidWrite, Stage::Write, text)
}

impl ReadTicket for ReadPin {
    fn grant(&self) -> &ReadGrant {
        &self.grant
    }

    fn cut(&self) -> Cancel {
        self.cut.clone()
    }

    fn progress(&self) {
        self.moved();
    }
}
