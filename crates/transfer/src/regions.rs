//! Memory of this process that peers may read and write by range.
//!
//! A process registers regions, tells its peers their numbers by whatever means it has, and
//! deregisters them when it wants the memory for itself again. Nothing becomes reachable by itself: a
//! data server serves exactly what stands in the [`Regions`] of its endpoint, and never the segment
//! that the endpoint keeps objects in.
//!
//! **Exclusive use.** A write shares its bytes with no other operation, reads share theirs with
//! reads; an operation that meets another in its range waits for it, a short while. Between peers
//! and the process itself this is up to the process: while a region is registered for writing it
//! touches the bytes only when it knows that no peer does (a peer tells it that a write is done),
//! while it is registered for reading it does not write bytes that a peer may be reading. One memory
//! belongs in one region only.

use crate::transport::RegionId;
use parking_lot::Mutex;
use snowskin_memory::error::MemoryError;
use snowskin_memory::probe::Touch;
use snowskin_memory::region::ExternalRegion;
use snowskin_memory::segment::Segment;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_proto::RangeRequest;
use snowskin_runtime::spawn::Cancel;
use snowskin_runtime::telemetry::Seldom;
use snowskin_types::error::{Code, Detail, Failure, Stage};
use snowskin_types::id::Epoch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long an operation waits for another one in its range.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);
/// How long operations that were cut may take to let go of their memory.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// Memory that the processor cannot use in place, such as that of a device. The data server stages what it
/// reads and writes there, a chunk at a time.
pub trait ForeignMemory: std::fmt::Debug + Send + Sync {
    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes at `offset` out; done with them when it returns.
    ///
    /// # Errors
    /// When they cannot be had.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Failure>;

    /// Copies bytes to `offset`; done with them when it returns.
    ///
    /// # Errors
    /// When they cannot be put there.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Failure>;
}

/// What a region is made of.
#[derive(Debug, Clone)]
pub enum RegionMemory {
    /// A segment as a whole.
    Segment(Segment),
    /// Memory that belongs to somebody else in this process.
    External(ExternalRegion),
    /// Memory that is reached by copies only.
    Foreign(Arc<dyn ForeignMemory>),
}

impl From<Segment> for RegionMemory {
    fn from(segment: Segment) -> Self {
        RegionMemory::Segment(segment)
    }
}

impl From<ExternalRegion> for RegionMemory {
    fn from(region: ExternalRegion) -> Self {
        RegionMemory::External(region)
    }
}

impl From<Arc<dyn ForeignMemory>> for RegionMemory {
    fn from(memory: Arc<dyn ForeignMemory>) -> Self {
        RegionMemory::Foreign(memory)
    }
}

impl RegionMemory {
    fn len(&self) -> u64 {
        match self {
            RegionMemory::Segment(segment) => segment.len(),
            RegionMemory::External(region) => region.len(),
            RegionMemory::Foreign(memory) => memory.len(),
        }
    }

    /// Whether it is this very segment.
    pub(crate) fn is_segment(&self, other: &Segment) -> bool {
        matches!(self, RegionMemory::Segment(segment) if segment.is_same(other))
    }
}

/// What peers may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionAccess {
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Read and write it.
    Both,
}

impl RegionAccess {
    fn allows(self, way: Way) -> bool {
        self == RegionAccess::Both || (self == RegionAccess::Read) == (way == Way::Read)
    }
}

/// What one operation does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

impl Way {
    fn stage(self) -> Stage {
        match self {
            Way::Read => Stage::Read,
            Way::Write => Stage::Write,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Read => "reading",
            Way::Write => "writing",
        }
    }
}

/// Why a region cannot be registered or deregistered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionsError {
    /// There are too many.
    #[error("{max} regions are registered, which is the bound")]
    Full {
        /// The bound.
        max: usize,
    },
    /// There is nothing to register.
    #[error("a region has at least one byte")]
    Empty,
    /// The memory is in a region already.
    #[error("the segment is registered already, as region {}", region.0)]
    Twice {
        /// Under which number.
        region: RegionId,
    },
    /// No such region.
    #[error("region {} is not registered", region.0)]
    Unknown {
        /// The number.
        region: RegionId,
    },
    /// Operations did not let go of it.
    #[error("{operations} operations still use region {}", region.0)]
    InUse {
        /// The number.
        region: RegionId,
        /// How many.
        operations: usize,
    },
}

/// A range in use by one operation.
#[derive(Debug)]
struct Span {
    id: u64,
    start: u64,
    end: u64,
    way: Way,
}

#[derive(Debug)]
struct Region {
    memory: RegionMemory,
    access: RegionAccess,
    /// No operation may begin any more.
    closing: bool,
    cut: Cancel,
    /// As many as connections have operations under way, which the server bounds.
    spans: Vec<Span>,
}

#[derive(Debug, Default)]
struct State {
    regions: BTreeMap<RegionId, Region>,
    last_region: u64,
    last_span: u64,
}

#[derive(Debug)]
struct Inner {
    epoch: Epoch,
    max: usize,
    state: Mutex<State>,
    /// Told whenever an operation lets go of its range.
    released: Notify,
    refusals: Seldom,
}

/// The regions of one process life. Clones are the same regions.
#[derive(Debug, Clone)]
pub struct Regions {
    inner: Arc<Inner>,
}

impl Regions {
    /// No regions yet, and never more than `max` at once. Peers have to name `epoch`, which no
    /// other life of this process may have.
    pub fn new(epoch: Epoch, max: usize) -> Self {
        Regions {
            inner: Arc::new(Inner {
                epoch,
                max,
                state: Mutex::default(),
                released: Notify::new(),
                refusals: Seldom::default(),
            }),
        }
    }

    /// The process life that peers have to name.
    pub fn epoch(&self) -> Epoch {
        self.inner.epoch
    }

    /// Lets peers use memory. Numbers are never given twice.
    ///
    /// # Errors
    /// When there are too many regions, the memory is empty, or it is registered already.
    pub fn register(
        &self,
        memory: impl Into<RegionMemory>,
        access: RegionAccess,
    ) -> Result<RegionId, RegionsError> {
        let memory = memory.into();
        if memory.len() == 0 {
            return Err(RegionsError::Empty);
        }
        let mut state = self.inner.state.lock();
        if state.regions.len() >= self.inner.max {
            return Err(RegionsError::Full {
                max: self.inner.max,
            });
        }
        if let RegionMemory::Segment(segment) = &memory {
            let mut regions = state.regions.iter();
            let twice = regions.find(|(_, region)| region.memory.is_segment(segment));
            if let Some((&region, _)) = twice {
                return Err(RegionsError::Twice { region });
            }
        }
        state.last_region += 1;
        let id = RegionId(state.last_region);
        let region = Region {
            memory,
            access,
            closing: false,
            cut: Cancel::new(),
            spans: Vec::new(),
        };
        state.regions.insert(id, region);
        Ok(id)
    }

    /// Takes a region back: no operation begins in it any more, those under way may go on for
    /// `patience` and are cut then. When this returns without an error nothing touches the memory.
    /// Needs the time of a tokio runtime.
    ///
    /// # Errors
    /// When there is no such region, or operations do not even let go of it after the cut; it stays
    /// closed and counts as registered then, and this can be called again.
    ///
    /// # Cancellation
    /// The region stays closed; call this again to wait for the operations under way.
    pub async fn deregister(
        &self,
        region: RegionId,
        patience: Duration,
    ) -> Result<(), RegionsError> {
        let cut = {
            let mut state = self.inner.state.lock();
            let found = state.regions.get_mut(&region);
            let found = found.ok_or(RegionsError::Unknown { region })?;
            found.closing = true;
            found.cut.clone()
        };
        if !self.quiet(region, patience).await {
            cut.cancel();
            if !self.quiet(region, CUT_WAIT).await {
                let operations = self.operations(region);
                return Err(RegionsError::InUse { region, operations });
            }
        }
        Ok(())
    }

    /// As [`Regions::deregister`] of a region that nobody was told of: does not wait.
    ///
    /// # Errors
    /// When there is no such region, or operations use it, which stays closed then.
    pub fn withdraw(&self, region: RegionId) -> Result<(), RegionsError> {
        let mut state = self.inner.state.lock();
        let found = state.regions.get_mut(&region);
        let found = found.ok_or(RegionsError::Unknown { region })?;
        found.closing = true;
        match found.spans.len() {
            0 => {
                state.regions.remove(&region);
                Ok(())
            }
            operations => Err(RegionsError::InUse { region, operations }),
        }
    }

    /// Operations under way in a region.
    pub fn operations(&self, region: RegionId) -> usize {
        let state = self.inner.state.lock();
        state
            .regions
            .get(&region)
            .map_or(0, |region| region.spans.len())
    }

    /// Regions registered now.
    pub fn count(&self) -> usize {
        self.inner.state.lock().regions.len()
    }

    /// Removes a closing region as soon as nothing uses it; false when that takes too long.
    async fn quiet(&self, region: RegionId, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let mut released = std::pin::pin!(self.inner.released.notified());
            // From here on no release is missed.
            released.as_mut().enable();
            {
                let mut state = self.inner.state.lock();
                if state
                    .regions
                    .get(&region)
                    .is_none_or(|region| region.spans.is_empty())
                {
                    state.regions.remove(&region);
                    return true;
                }
            }
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                return false;
            }
        }
    }

    /// Begins an operation, once no other one is in its way.
    pub(crate) async fn begin(&self, range: &RangeRequest, way: Way) -> Result<InUse, Failure> {
        let deadline = Instant::now() + CONFLICT_WAIT;
        loop {
            let mut released = std::pin::pin!(self.inner.released.notified());
            // From here on no release is missed.
            released.as_mut().enable();
            if let Some(in_use) = self.try_begin(range, way)? {
                return Ok(in_use);
            }
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                let text = format!(
                    "another operation uses bytes of the range {}+{} of region {}",
                    range.offset, range.len, range.region
                );
                return Err(Failure::new(Code::ObjectReplicaBusy, way.stage(), text));
            }
        }
    }

    /// Checks everything that there is to check; none when another operation is in the way.
    fn try_begin(&self, range: &RangeRequest, way: Way) -> Result<Option<InUse>, Failure> {
        let refuse = |code, text: String| Failure::new(code, way.stage(), text);
        if range.epoch != self.inner.epoch {
            let text = format!(
                "the region is of process life {}, this is {}",
                range.epoch, self.inner.epoch
            );
            return Err(refuse(Code::ReplicaGone, text));
        }
        let mut state = self.inner.state.lock();
        let state = &mut *state;
        let id = RegionId(range.region);
        let found = state.regions.get_mut(&id).filter(|region| !region.closing);
        let Some(region) = found else {
            return Err(not_registered(id, way));
        };
        if !region.access.allows(way) {
            let text = format!("region {} is not registered for {}", id.0, way.name());
            return Err(refuse(Code::IllegalClient, text));
        }
        let size = region.memory.len();
        let end = range.offset.saturating_add(range.len);
        if range.len == 0 || end > size {
            let code = match way {
                Way::Read => Code::InvalidRead,
                Way::Write => Code::InvalidParams,
            };
            let text = format!(
                "the range {}+{} is not inside of the {size} bytes of region {}",
                range.offset, range.len, id.0
            );
            let detail = Detail {
                wanted: end,
                largest: size,
                ..Detail::default()
            };
            return Err(refuse(code, text).with_detail(detail));
        }
        let in_the_way = |span: &Span| {
            let shared = span.way == Way::Read && way == Way::Read;
            span.start < end && range.offset < span.end && !shared
        };
        if region.spans.iter().any(in_the_way) {
            return Ok(None);
        }
        state.last_span += 1;
        region.spans.push(Span {
            id: state.last_span,
            start: range.offset,
            end,
            way,
        });
        Ok(Some(InUse {
            region: id,
            span: state.last_span,
            range: *range,
            way,
            memory: region.memory.clone(),
            cut: region.cut.clone(),
            inner: Arc::clone(&self.inner),
        }))
    }
}

fn not_registered(region: RegionId, way: Way) -> Failure {
    let text = format!("region {} is not registered here", region.0);
    Failure::new(Code::SegmentNotFound, way.stage(), text)
}

/// How the bytes of a range are reached.
pub(crate) enum Reached<'u, S> {
    /// In place.
    Direct(S),
    /// By copies from and to this memory.
    ByCopy(&'u dyn ForeignMemory),
}

/// A range in use. Dropping it lets others have the range, so lists over its memory end before.
#[derive(Debug)]
pub(crate) struct InUse {
    region: RegionId,
    span: u64,
    range: RangeRequest,
    way: Way,
    memory: RegionMemory,
    cut: Cancel,
    inner: Arc<Inner>,
}

impl InUse {
    pub(crate) fn memory(&self) -> &RegionMemory {
        &self.memory
    }

    /// Cancelled when the region is taken back.
    pub(crate) fn cut(&self) -> &Cancel {
        &self.cut
    }

    /// What to tell the peer after a cut.
    pub(crate) fn gone(&self) -> Failure {
        not_registered(self.region, self.way)
    }

    /// The range itself, or what it has to be copied from.
    ///
    /// # Errors
    /// When the process has unmapped it without taking the region back.
    pub(crate) fn source(&self) -> Result<Reached<'_, SourceSlices<'static>>, Failure> {
        let RangeRequest { offset, len, .. } = self.range;
        let source = match &self.memory {
            RegionMemory::Segment(segment) => segment.source([(offset, len)]),
            RegionMemory::External(region) => region
                .probe(offset, len, Touch::Read)
                .and_then(|()| region.source(offset, len)),
            RegionMemory::Foreign(memory) => return Ok(Reached::ByCopy(&**memory)),
        };
        source
            .map(Reached::Direct)
            .map_err(|error| self.unusable(&error))
    }

    /// The range itself, or what it has to be copied to.
    ///
    /// # Errors
    /// When the process has unmapped it without taking the region back.
    pub(crate) fn target(&self) -> Result<Reached<'_, TargetSlices<'static>>, Failure> {
        let RangeRequest { offset, len, .. } = self.range;
        let target = match &self.memory {
            RegionMemory::Segment(segment) => segment.target([(offset, len)]),
            RegionMemory::External(region) => region
                .probe(offset, len, Touch::Write)
                .and_then(|()| region.target(offset, len)),
            RegionMemory::Foreign(memory) => return Ok(Reached::ByCopy(&**memory)),
        };
        target
            .map(Reached::Direct)
            .map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &MemoryError) -> Failure {
        let code = match (error, self.way) {
            (MemoryError::Gone { .. }, Way::Read) => Code::InvalidRead,
            (MemoryError::Gone { .. }, Way::Write) => Code::InvalidParams,
            (MemoryError::ReadOnly, _) => Code::IllegalClient,
            _ => Code::Internal,
        };
        if let Some(count) = self.inner.refusals.another() {
            tracing::warn!(count, region = self.region.0, last = %error, "peers were refused registered memory");
        }
        let text = format!("region {}: {error}", self.region.0);
        Failure::new(code, self.way.stage(), text)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        if let Some(region) = state.regions.get_mut(&self.region) {
            region.spans.retain(|span| span.id != self.span);
        }
        drop(state);
        self.inner.released.notify_waiters();
    }
}

#[cfg(test)]
#[path = "regions_test.rs"]
mod regions_test;
