//! Where the bytes of a call come from and go to.

use snowskin_memory::region::ExternalRegion;
use snowskin_memory::scattered::Scattered;
use snowskin_memory::slices::{SourceSlices, TargetSlices};
use snowskin_types::checksum::{PieceHasher, PieceSums};
use snowskin_types::{Code, Failure, Stage};

/// Bytes to put.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Source<'a> {
    /// One run.
    Bytes(&'a [u8]),
    /// Several runs, one after the other.
    Parts(Vec<&'a [u8]>),
    /// A range of memory that is named by address.
    Region {
        region: &'a RegionShare,
        offset: u64,
        len: u64,
    },
    /// Ranges of memory that is named by address, one after the other.
    Scattered(&'a Scattered),
}

/// Memory of the caller that is named by address.
pub struct RegionShare(pub ExternalRegion);

impl std::fmt::Debug for RegionShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegionShare({} bytes)", self.0.len())
    }
}

impl<'a> Source<'a> {
    /// Bytes in all.
    pub fn len(&self) -> u64 {
        match self {
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Parts(parts) => parts.iter().map(|p| p.len() as u64).sum(),
            Source::Region { len, .. } => *len,
            Source::Scattered(list) => list.len(),
        }
    }

    /// True without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn slices(&self) -> Result<SourceSlices<'a>, Failure> {
        match self {
            Source::Bytes(bytes) => Ok(SourceSlices::of(bytes)),
            Source::Parts(parts) => Ok(SourceSlices::of_all(parts.iter().copied())),
            Source::Region {
                region,
                offset,
                len,
            } => region
                .0
                .source(*offset, *len)
                .map_err(|e| outside(&e, Stage::Write)),
            Source::Scattered(list) => Ok(list.source()),
        }
    }

    pub(crate) fn sums(&self) -> Result<PieceSums, Failure> {
        if let Source::Bytes(bytes) = self {
            return Ok(PieceSums::of(bytes));
        }
        let mut hasher = PieceHasher::default();
        self.slices()?.visit(|run| hasher.update(run));
        Ok(hasher.finish())
    }
}

/// Room for bytes to get.
#[derive(Debug)]
#[allow(missing_docs, reason = "the variants' documentation names the fields")]
pub enum Target<'a> {
    /// A vector that is made to measure.
    Vec(&'a mut Vec<u8>),
    /// One run, which may be larger than what comes.
    Bytes(&'a mut [u8]),
    /// Several runs, filled one after the other.
    Parts(Vec<&'a mut [u8]>),
    /// A range of memory that is named by address.
    Region {
        region: &'a RegionShare,
        offset: u64,
        len: u64,
    },
    /// Ranges of memory that is named by address, filled one after the other.
    Scattered(&'a Scattered),
    /// Room that its owner makes to measure.
    Made(&'a mut dyn Room),
}

/// Makes room for an object once its size is known.
pub trait Room: Send {
    /// Room for exactly `len` bytes, which are then written in whole or in part. Asked for on the
    /// caller's thread, and again for another replica when one failed: what was made before is not
    /// used any more then.
    ///
    /// # Errors
    /// When there is no room. A failure whose code is never retried becomes the result of the item.
    fn room(&mut self, len: usize) -> Result<&mut [u8], Failure>;
}

impl std::fmt::Debug for dyn Room + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Room")
    }
}

impl Target<'_> {
    /// Bytes there is room for; `None` when it is made to measure.
    pub fn room(&self) -> Option<u64> {
        match self {
            Target::Vec(_) | Target::Made(_) => None,
            Target::Bytes(bytes) => Some(bytes.len() as u64),
            Target::Parts(parts) => Some(parts.iter().map(|p| p.len() as u64).sum()),
            Target::Region { len, .. } => Some(*len),
            Target::Scattered(list) => Some(list.len()),
        }
    }

    /// The same target, borrowed for a shorter time.
    pub(crate) fn share(&mut self) -> Target<'_> {
        match self {
            Target::Vec(vec) => Target::Vec(vec),
            Target::Bytes(bytes) => Target::Bytes(bytes),
            Target::Parts(parts) => {
                Target::Parts(parts.iter_mut().map(|part| &mut **part).collect())
            }
            Target::Region {
                region,
                offset,
                len,
            } => Target::Region {
                region,
                offset: *offset,
                len: *len,
            },
            Target::Scattered(list) => Target::Scattered(list),
            Target::Made(owner) => Target::Made(&mut **owner),
        }
    }

    /// The first `len` bytes, to receive into. The plan has checked that there is room.
    pub(crate) fn slices(&mut self, len: u64) -> Result<TargetSlices<'_>, Failure> {
        let short = || {
            Failure::new(
                Code::BufferOverflow,
                Stage::Read,
                format!("no room for {len} bytes"),
            )
        };
        let size = usize::try_from(len).map_err(|_| short())?;
        match self {
            Target::Vec(vec) => {
                resize(vec, size)?;
                Ok(TargetSlices::of(vec.as_mut_slice()))
            }
            Target::Bytes(bytes) => Ok(TargetSlices::of(bytes.get_mut(..size).ok_or_else(short)?)),
            Target::Parts(parts) => {
                let mut left = size;
                let mut runs = Vec::with_capacity(parts.len());
                for part in parts.iter_mut() {
                    let take = left.min(part.len());
                    left -= take;
                    runs.push(&mut part[..take]);
                }
                if left > 0 {
                    return Err(short());
                }
                Ok(TargetSlices::of_all(runs))
            }
            Target::Region { region, offset, .. } => region
                .0
                .target(*offset, len)
                .map_err(|e| outside(&e, Stage::Read)),
            Target::Scattered(list) => list.target(len).map_err(|e| outside(&e, Stage::Read)),
            Target::Made(owner) => {
                let room = owner.room(size)?;
                Ok(TargetSlices::of(room.get_mut(..size).ok_or_else(short)?))
            }
        }
    }
}

/// Sizes above this are asked of the allocator first, as they may well be refused; below, fresh
/// zeroed memory is cheaper than clearing it.
const ASK_ABOVE: usize = 1 << 30;

fn resize(vec: &mut Vec<u8>, size: usize) -> Result<(), Failure> {
    if size <= ASK_ABOVE && vec.is_empty() {
        *vec = vec![0; size];
        return Ok(());
    }
    vec.clear();
    vec.try_reserve_exact(size).map_err(|_| {
        Failure::new(
            Code::BufferOverflow,
            Stage::Read,
            format!("{size} bytes of memory could not be had; read into a buffer or in ranges"),
        )
    })?;
    vec.resize(size, 0);
    Ok(())
}

fn outside(error: &snowskin_memory::error::MemoryError, stage: Stage) -> Failure {
    Failure::new(Code::InvalidParams, stage, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_sums_of_the_whole() {
        let bytes: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
        let parts = Source::Parts(vec![&bytes[..3], &bytes[3..300_000], &bytes[300_000..]]);
        assert_eq!(parts.len(), bytes.len() as u64);
        assert_eq!(parts.sums().unwrap(), PieceSums::of(&bytes));
    }

    #[test]
    fn targets_lend_no_more_than_their_room() {
        let (mut a, mut b) = ([0u8; 3], [0u8; 5]);
        let mut target = Target::Parts(vec![&mut a, &mut b]);
        assert_eq!(target.room(), Some(8));
        assert_eq!(target.slices(4).unwrap().remaining(), 4);
        assert!(target.slices(9).is_err());
        target.slices(4).unwrap().fill_from(&[1, 2, 3, 4]);
        assert_eq!((a, b), ([1, 2, 3], [4, 0, 0, 0, 0]));
    }

    #[test]
    fn a_vector_is_made_to_measure_each_time() {
        let mut vec = Vec::new();
        let mut target = Target::Vec(&mut vec);
        assert_eq!(target.slices(10).unwrap().remaining(), 10);
        assert_eq!(target.slices(4).unwrap().remaining(), 4);
        assert_eq!(vec.len(), 4);
    }
}
