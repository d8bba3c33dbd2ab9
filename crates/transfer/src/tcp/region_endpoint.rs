//! The data server's counterpart in a process that has regions and no objects, such as an engine that
//! lets its peers write into its memory.

use crate::regions::Regions;
use crate::tcp::endpoint::{Endpoint, Filled, ReadGrant, ReadTicket, WriteStart, WriteTicket};
use snowskin_memory::error::MemoryError;
use snowskin_memory::segment::Segment;
use snowskin_runtime::spawn::Cancel;
use snowskin_types::access::{Extent, ReadRequest, WriteRequest};
use snowskin_types::error::{Code, Failure, Stage};
use std::sync::Arc;

/// Serves ranges of regions only.
#[derive(Debug)]
pub struct RegionEndpoint {
    regions: Regions,
    /// Where objects would be.
    segment: Segment,
}

impl RegionEndpoint {
    /// Serves these regions.
    ///
    /// # Errors
    /// When the system has no page left.
    pub fn new(regions: Regions) -> Result<Self, MemoryError> {
        let segment = Segment::anonymous(1)?;
        Ok(RegionEndpoint { regions, segment })
    }
}

/// The ticket of an object, which there is none of.
#[derive(Debug)]
pub enum NoObject {}

impl WriteTicket for NoObject {
    fn extents(&self) -> Arc<[Extent]> {
        match *self {}
    }

    fn cut(&self) -> Cancel {
        match *self {}
    }

    async fn end(self, _: Filled) -> Result<(), Failure> {
        match self {}
    }
}

impl ReadTicket for NoObject {
    fn grant(&self) -> &ReadGrant {
        match *self {}
    }

    fn cut(&self) -> Cancel {
        match *self {}
    }

    fn progress(&self) {
        match *self {}
    }
}

fn refusal(stage: Stage) -> Failure {
    let text = "this process has regions of memory, and no objects";
    Failure::new(Code::NotSupported, stage, text)
}

impl Endpoint for RegionEndpoint {
    type Write = NoObject;
    type Read = NoObject;

    fn segment(&self) -> &Segment {
        &self.segment
    }

    fn regions(&self) -> Option<&Regions> {
        Some(&self.regions)
    }

    async fn write_start(&self, _: WriteRequest) -> WriteStart<NoObject> {
        WriteStart::Answered(Err(refusal(Stage::Write)))
    }

    async fn read_start(&self, _: ReadRequest) -> Result<NoObject, Failure> {
        Err(refusal(Stage::Read))
    }

    fn found_damaged(&self, _: &ReadRequest) {}
}
