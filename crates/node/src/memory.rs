//! The segment of a node, and the page behind it that readers on the same host look at.
//!
//! The mapping (one memfd) is the data followed by one control page, so that extents count from the
//! start of the mapping. Words of the page, each a little-endian `u64` that is only ever stored whole:
//!
//! | offset | word |
//! |---|---|
//! | 0 | [`ControlPage::MAGIC`] |
//! | 8 | epoch of the node's process life |
//! | 16 | bytes of data, which is the offset of the page |
//! | 24 | end of the serving lease: milliseconds of `CLOCK_BOOTTIME`, on which all processes of a host agree |
//!
//! A reader that maps the segment believes nothing of it from that end on: a node that was stopped
//! or frozen cannot tell it anything, so it must read the word before and after its copy.

use snowskin_memory::error::MemoryError;
use snowskin_memory::limits::{LimitError, Locking, Report};
use snowskin_memory::segment::{PeerAccess, Segment, SegmentView};
use snowskin_types::id::Epoch;
use snowskin_types::time::Now;

/// Bytes behind the data that the control page takes.
pub const CONTROL_BYTES: u64 = 4096;

const EPOCH_AT: u64 = 8;
const DATA_AT: u64 = 16;
const SERVE_UNTIL_AT: u64 = 24;

/// What the control page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlPage {
    /// Process life of the owner.
    pub epoch: Epoch,
    /// Bytes of data before the page.
    pub data_bytes: u64,
    /// The owner serves before this moment.
    pub serve_until: Now,
}

impl ControlPage {
    /// First word: `snowctl1` read as a little-endian number.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"snowctl1");

    /// Reads the page of a foreign segment; `None` when there is none.
    ///
    /// # Errors
    /// When the mapping is too short.
    pub fn read(view: &SegmentView) -> Result<Option<Self>, MemoryError> {
        let start = view.len().saturating_sub(CONTROL_BYTES);
        let word = |at| view.load_u64(start + at).map(u64::from_le);
        if word(0)? != Self::MAGIC || word(DATA_AT)? != start {
            return Ok(None);
        }
        Ok(Some(ControlPage {
            epoch: Epoch(word(EPOCH_AT)?),
            data_bytes: start,
            serve_until: Now(word(SERVE_UNTIL_AT)?),
        }))
    }
}

/// The segment of this process.
#[derive(Debug, Clone)]
pub(crate) struct NodeMemory {
    segment: Segment,
    data_bytes: u64,
}

impl NodeMemory {
    /// Makes it; `data_bytes` is a multiple of the page size.
    pub(crate) fn new(data_bytes: u64, epoch: Epoch) -> Result<Self, MemoryError> {
        let wanted = data_bytes
            .checked_add(CONTROL_BYTES)
            .ok_or(MemoryError::TooLarge { wanted: data_bytes })?;
        let segment = Segment::shared("snowskin-segment", wanted, PeerAccess::Read)?;
        let memory = NodeMemory {
            segment,
            data_bytes,
        };
        memory.put(EPOCH_AT, epoch.0)?;
        memory.put(DATA_AT, data_bytes)?;
        memory.put(SERVE_UNTIL_AT, 0)?;
        // Last, so that a page with this word is complete.
        memory.put(0, ControlPage::MAGIC)?;
        Ok(memory)
    }

    /// The mapping; extents count from its start.
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Writes the end of the serving lease down for readers of the same host.
    pub(crate) fn serve_until(&self, until: Now) {
        // The page is inside the mapping and the word aligned, so this cannot fail.
        self.put(SERVE_UNTIL_AT, until.0).ok();
    }

    fn put(&self, at: u64, word: u64) -> Result<(), MemoryError> {
        self.segment.store_u64(self.data_bytes + at, word.to_le())
    }
}

/// What keeps the pages of the segment from being locked. They are not locked by this node, so this
/// stops nothing; registering the segment with a fabric would lock them.
pub(crate) fn unlockable(limits: &Report, bytes: u64) -> Option<LimitError> {
    let checked = limits.check(bytes, Locking::Locked, 0).err();
    checked.filter(|error| matches!(error, LimitError::Locked { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowskin_memory::limits::SoftHard;

    #[test]
    fn readers_of_the_host_see_the_end_of_the_serving_lease() {
        let memory = NodeMemory::new(8192, Epoch(7)).unwrap();
        memory.serve_until(Now(12_345));
        let file = memory.segment().file().unwrap().try_clone_to_owned();
        let view = SegmentView::attach(file.unwrap(), 8192 + CONTROL_BYTES).unwrap();
        let page = ControlPage::read(&view).unwrap().unwrap();
        assert_eq!(page.epoch, Epoch(7));
        assert_eq!(page.data_bytes, 8192);
        assert_eq!(page.serve_until, Now(12_345));
        memory.serve_until(Now(12_346));
        let again = ControlPage::read(&view).unwrap().unwrap();
        assert_eq!(again.serve_until, Now(12_346));
    }

    #[test]
    fn a_segment_above_the_limit_of_locked_memory_names_it() {
        let report = |soft| Report {
            available_bytes: 1 << 40,
            cgroup: None,
            room_bytes: 1 << 40,
            locked_bytes: SoftHard { soft, hard: soft },
            locked_bytes_used: 4096,
            files: SoftHard {
                soft: Some(1),
                hard: Some(1),
            },
            files_used: 1,
        };
        let bytes = 1 << 20;
        let error = unlockable(&report(Some(bytes)), bytes).map(|e| e.to_string());
        let error = error.unwrap_or_default();
        for part in ["RLIMIT_MEMLOCK", "limit 1048576", "locked 4096"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(unlockable(&report(Some(bytes + 4096)), bytes).is_none());
        assert!(unlockable(&report(None), bytes).is_none());
    }
}
