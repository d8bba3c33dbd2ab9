//! Space inside one segment: which bytes are taken, which are free.
//!
//! The arena is arithmetic only; it never touches the memory it divides. An object gets one
//! contiguous extent when there is room for one, otherwise a list of extents of at most
//! [`PIECE_BYTES_MAX`], so that a fragmented segment stays usable (98 % and more on every size mix
//! that was measured, against 74 % without the list). A caller that wants objects whole evicts at
//! about 95 % fill rather than on failure.
//!
//! [`Extents`] is a move-only ticket: it is the right to the bytes, and giving it to
//! [`Arena::free`] is the only way back. Dropping one leaks its bytes until the arena goes.

use std::sync::atomic::{AtomicU32, Ordering};

use offset_allocator::{Allocation, Allocator};

/// Granularity of the arena; every extent starts at a multiple of it.
pub const UNIT_BYTES: u64 = 4096;
/// Largest extent of an object that is not contiguous.
pub const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Smallest extent of an object that is not contiguous; its last extent may be smaller.
pub const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Largest arena: offsets are 32-bit numbers of units.
pub const CAPACITY_BYTES_MAX: u64 = (u32::MAX as u64) * UNIT_BYTES;

/// One entry of the region table for each of so many units, on average.
const UNITS_PER_REGION: u32 = 4;
/// Below this many entries the table covers the worst case, a region for every unit.
const REGIONS_MIN: u32 = 256 << 10;
/// The table never takes more than this many entries of 32 bytes (2 GiB, reached at 1 TiB).
const REGIONS_MAX: u32 = 64 << 20;
/// Entries the allocator needs for itself: it stops while one is left, and starts with one in use.
const REGIONS_SLACK: u32 = 4;

/// Tells arenas of one process apart, so that a ticket is never freed into the wrong one.
static ARENAS_MADE: AtomicU32 = AtomicU32::new(0);

/// A run of bytes inside a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First byte, counted from the start of the segment.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Extent {
    /// First byte after the extent.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

#[derive(Clone, Copy)]
struct Piece {
    allocation: Allocation<u32>,
    units: u32,
}

enum Pieces {
    One(Piece),
    Many(Box<[Piece]>),
}

impl Pieces {
    fn as_slice(&self) -> &[Piece] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }
}

/// The right to the bytes of one object: its extents, in order.
#[must_use = "dropping the ticket leaks the bytes; give it back with Arena::free"]
pub struct Extents {
    len: u64,
    arena: u32,
    pieces: Pieces,
}

impl Extents {
    /// Bytes asked for, which is the sum of the extents' lengths.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// False always: an object has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of extents.
    pub fn count(&self) -> usize {
        self.pieces.as_slice().len()
    }

    /// Whether the object is in one piece.
    pub fn is_contiguous(&self) -> bool {
        self.count() == 1
    }

    /// Bytes the object takes from the arena, whole units.
    pub fn reserved_bytes(&self) -> u64 {
        self.pieces
            .as_slice()
            .iter()
            .map(|piece| units_to_bytes(piece.units))
            .sum()
    }

    /// The extents in the order of the object's bytes.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        let mut left = self.len;
        self.pieces.as_slice().iter().map(move |piece| {
            let len = units_to_bytes(piece.units).min(left);
            left -= len;
            Extent {
                offset: units_to_bytes(piece.allocation.offset),
                len,
            }
        })
    }

    /// The extents that hold the object's bytes `offset..offset + len`, or `None` when the object is shorter.
    pub fn range(&self, offset: u64, len: u64) -> Option<Vec<Extent>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len)?;
        let mut found = Vec::new();
        let mut position = 0;
        for extent in self.iter() {
            let (from, to) = (position.max(offset), (position + extent.len).min(end));
            if from < to {
                found.push(Extent {
                    offset: extent.offset + (from - position),
                    len: to - from,
                });
            }
            position += extent.len;
        }
        Some(found)
    }
}

impl std::fmt::Debug for Extents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Why an arena could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// Smaller than one unit.
    #[error("arena of {wanted} bytes is too small: at least {UNIT_BYTES} bytes are needed")]
    TooSmall {
        /// Capacity asked for.
        wanted: u64,
    },
    /// More units than 32 bits can number.
    #[error(
        "arena of {wanted} bytes is too large: at most {CAPACITY_BYTES_MAX} bytes, use several segments"
    )]
    TooLarge {
        /// Capacity asked for.
        wanted: u64,
    },
}

/// What went wrong since the arena was made, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaCounters {
    /// Allocations that found too little free space, or only holes below the smallest piece.
    pub no_space: u64,
    /// Allocations that failed because the table of regions was full while bytes were free.
    pub table_full: u64,
    /// Tickets of another arena offered to [`Arena::free`]; refused, their bytes stay taken.
    pub foreign_frees: u64,
}

/// Divides one segment into extents.
pub struct Arena {
    id: u32,
    units: u32,
    units_used: u32,
    regions_max: u32,
    objects: u64,
    extents: u64,
    counters: ArenaCounters,
    allocator: Allocator<u32>,
}

impl Arena {
    /// Makes an empty arena; a last part of less than one unit stays unused.
    ///
    /// # Errors
    /// When the capacity is below one unit or above [`CAPACITY_BYTES_MAX`].
    pub fn new(capacity_bytes: u64) -> Result<Self, ArenaError> {
        if capacity_bytes < UNIT_BYTES {
            return Err(ArenaError::TooSmall {
                wanted: capacity_bytes,
            });
        }
        let units =
            u32::try_from(capacity_bytes / UNIT_BYTES).map_err(|_| ArenaError::TooLarge {
                wanted: capacity_bytes,
            })?;
        Ok(Self::with_regions(units, regions_for(units)))
    }

    fn with_regions(units: u32, regions_max: u32) -> Self {
        Self {
            // A number that wraps after 2^32 arenas only weakens the check of foreign tickets.
            id: ARENAS_MADE.fetch_add(1, Ordering::Relaxed),
            units,
            units_used: 0,
            regions_max,
            objects: 0,
            extents: 0,
            counters: ArenaCounters::default(),
            allocator: Allocator::with_max_allocs(units, regions_max),
        }
    }

    /// Takes `len` bytes, all or nothing: contiguous if possible, otherwise in pieces.
    ///
    /// `None` means that nothing was taken; [`Arena::counters`] tells why. Zero bytes get `None`.
    pub fn allocate(&mut self, len: u64) -> Option<Extents> {
        let wanted = len.div_ceil(UNIT_BYTES);
        if len == 0 {
            return None;
        }
        let wanted = u32::try_from(wanted)
            .ok()
            .filter(|wanted| *wanted <= self.units_free());
        let Some(wanted) = wanted else {
            self.counters.no_space += 1;
            return None;
        };
        let pieces = match self.allocator.allocate(wanted) {
            Some(allocation) => Pieces::One(Piece {
                allocation,
                units: wanted,
            }),
            None => self.allocate_pieces(wanted)?,
        };
        self.units_used += wanted;
        self.objects += 1;
        self.extents += pieces.as_slice().len() as u64;
        Some(Extents {
            len,
            arena: self.id,
            pieces,
        })
    }

    /// Takes `wanted` units in pieces; a piece that finds no room is halved, the rest is tried on.
    fn allocate_pieces(&mut self, wanted: u32) -> Option<Pieces> {
        let smallest = bytes_to_units(PIECE_BYTES_MIN);
        let mut piece_max = bytes_to_units(PIECE_BYTES_MAX);
        let mut left = wanted;
        let mut pieces: Vec<Piece> = Vec::new();
        while left > 0 {
            let units = left.min(piece_max);
            if let Some(allocation) = self.allocator.allocate(units) {
                pieces.push(Piece { allocation, units });
                left -= units;
            } else if units > smallest && !self.table_full() {
                // Powers of two fit the allocator's size classes exactly, so no hole is passed over.
                piece_max = (units / 2).next_power_of_two().max(smallest);
            } else {
                if self.table_full() {
                    self.counters.table_full += 1;
                } else {
                    self.counters.no_space += 1;
                }
                for piece in pieces {
                    self.allocator.free(piece.allocation);
                }
                return None;
            }
        }
        match pieces.as_slice() {
            [piece] => Some(Pieces::One(*piece)),
            _ => Some(Pieces::Many(pieces.into_boxed_slice())),
        }
    }

    /// Gives the bytes back.
    pub fn free(&mut self, extents: Extents) {
        if extents.arena != self.id {
            debug_assert!(false, "extents of another arena were freed");
            self.counters.foreign_frees += 1;
            return;
        }
        for piece in extents.pieces.as_slice() {
            self.allocator.free(piece.allocation);
            self.units_used -= piece.units;
            self.extents -= 1;
        }
        self.objects -= 1;
    }

    /// Bytes the arena divides, whole units.
    pub fn capacity(&self) -> u64 {
        units_to_bytes(self.units)
    }

    /// Bytes taken, whole units.
    pub fn used_bytes(&self) -> u64 {
        units_to_bytes(self.units_used)
    }

    /// Bytes not taken.
    pub fn free_bytes(&self) -> u64 {
        units_to_bytes(self.units_free())
    }

    /// Largest length that is sure to be granted as one extent; the largest hole is up to an
    /// eighth longer. Longer objects are granted in pieces.
    pub fn largest_free(&self) -> u64 {
        units_to_bytes(self.allocator.storage_report().largest_free_region)
    }

    /// Objects that hold bytes.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Extents that hold bytes; divided by the objects it tells how whole they are.
    pub fn extents(&self) -> u64 {
        self.extents
    }

    /// Number of regions, taken or free, that the table has room for.
    pub fn regions_max(&self) -> u32 {
        self.regions_max
    }

    /// Whether nothing can be taken, for want of table entries, although bytes are free.
    pub fn table_full(&self) -> bool {
        // The allocator reports no free space at all once its table is full. While a piecewise
        // allocation runs, `units_used` lags behind; that only matters when nothing is left at all,
        // and then the piece would have been granted.
        self.units_free() > 0 && self.allocator.storage_report().total_free_space == 0
    }

    /// What went wrong so far.
    pub fn counters(&self) -> ArenaCounters {
        self.counters
    }

    fn units_free(&self) -> u32 {
        self.units - self.units_used
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("capacity", &self.capacity())
            .field("used", &self.used_bytes())
            .field("objects", &self.objects)
            .field("extents", &self.extents)
            .finish_non_exhaustive()
    }
}

fn units_to_bytes(units: u32) -> u64 {
    u64::from(units) * UNIT_BYTES
}

/// Only for the piece sizes above, which are small multiples of a unit.
fn bytes_to_units(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX)
}

/// Entries of the region table for an arena of so many units (32 bytes of memory each).
fn regions_for(units: u32) -> u32 {
    let on_average = units / UNITS_PER_REGION;
    on_average.clamp(REGIONS_MIN.min(units), REGIONS_MAX) + REGIONS_SLACK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn arena(bytes: u64) -> Arena {
        Arena::new(bytes).unwrap()
    }

    #[test]
    fn capacity_outside_the_bounds_is_refused() {
        assert_eq!(
            Arena::new(4095).unwrap_err(),
            ArenaError::TooSmall { wanted: 4095 }
        );
        let too_large = CAPACITY_BYTES_MAX + UNIT_BYTES;
        assert_eq!(
            Arena::new(too_large).unwrap_err(),
            ArenaError::TooLarge { wanted: too_large }
        );
    }

    #[test]
    fn a_partial_last_unit_is_not_handed_out() {
        let mut arena = arena(UNIT_BYTES + 4095);
        assert_eq!(arena.capacity(), UNIT_BYTES);
        let only = arena.allocate(1).unwrap();
        assert_eq!(
            only.iter().collect::<Vec<_>>(),
            [Extent { offset: 0, len: 1 }]
        );
        assert_eq!((arena.used_bytes(), arena.free_bytes()), (UNIT_BYTES, 0));
        assert!(arena.allocate(1).is_none());
        assert!(!arena.table_full());
        arena.free(only);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn impossible_lengths_are_refused_without_a_trace() {
        let mut arena = arena(MIB);
        for len in [0, MIB + 1, u64::MAX] {
            assert!(arena.allocate(len).is_none(), "{len}");
        }
        assert_eq!((arena.used_bytes(), arena.objects()), (0, 0));
    }

    #[test]
    fn an_object_is_contiguous_while_there_is_room() {
        let mut arena = arena(256 * MIB);
        let large = arena.allocate(100 * MIB + 3).unwrap();
        assert!(large.is_contiguous());
        assert_eq!(large.reserved_bytes(), 100 * MIB + UNIT_BYTES);
        arena.free(large);
    }

    #[test]
    fn a_fragmented_arena_grants_pieces_of_at_most_4_mib() {
        let mut arena = arena(64 * MIB);
        let mut held: Vec<_> = (0..64).map(|_| arena.allocate(MIB).unwrap()).collect();
        assert_eq!(arena.free_bytes(), 0);
        for index in (0..64).rev().step_by(2) {
            arena.free(held.swap_remove(index));
        }
        assert_eq!(arena.largest_free(), MIB);
        let large = arena.allocate(20 * MIB - 5).unwrap();
        assert!(large.count() >= 20, "{large:?}");
        assert!(large.iter().all(|extent| extent.len <= PIECE_BYTES_MAX));
        assert_eq!(
            large.iter().map(|extent| extent.len).sum::<u64>(),
            20 * MIB - 5
        );
        arena.free(large);
        held.into_iter().for_each(|extents| arena.free(extents));
        assert_eq!(arena.allocate(64 * MIB).map(|all| all.count()), Some(1));
    }

    #[test]
    fn a_failed_allocation_takes_nothing() {
        let mut arena = arena(4 * MIB);
        let mut held: Vec<_> = (0..1024).map(|_| arena.allocate(1).unwrap()).collect();
        for index in (0..1024).rev().step_by(2) {
            arena.free(held.swap_remove(index));
        }
        // Half is free, in holes of one unit, which are below the smallest piece.
        assert_eq!(arena.free_bytes(), 2 * MIB);
        assert!(arena.allocate(MIB).is_none());
        assert_eq!(arena.free_bytes(), 2 * MIB);
        assert_eq!(
            arena.counters(),
            ArenaCounters {
                no_space: 1,
                ..Default::default()
            }
        );
        assert_eq!(arena.allocate(UNIT_BYTES).map(|one| one.count()), Some(1));
    }

    #[test]
    fn the_whole_of_any_arena_can_be_one_object() {
        for units in (1..200).chain([1023, 1025, 4095, 4097, 123_457]) {
            let mut arena = arena(units * UNIT_BYTES);
            let all = arena.allocate(units * UNIT_BYTES).unwrap();
            assert_eq!(
                (arena.free_bytes(), arena.largest_free()),
                (0, 0),
                "{units} units"
            );
            arena.free(all);
            assert_eq!(arena.free_bytes(), arena.capacity());
        }
    }

    #[test]
    fn a_small_arena_can_be_filled_with_single_units() {
        let mut arena = arena(1000 * UNIT_BYTES);
        let mut held: Vec<_> = (0..1000).map(|_| arena.allocate(1).unwrap()).collect();
        assert_eq!(arena.free_bytes(), 0);
        while let Some(extents) = held.pop() {
            arena.free(extents);
        }
        assert_eq!(arena.counters(), ArenaCounters::default());
    }

    #[test]
    fn a_full_region_table_is_told_from_missing_space() {
        let mut arena = Arena::with_regions(1000, 10);
        let mut held = Vec::new();
        while let Some(extents) = arena.allocate(1) {
            held.push(extents);
        }
        assert!(arena.table_full());
        assert_eq!(held.len(), 8);
        assert_eq!(
            arena.counters(),
            ArenaCounters {
                table_full: 1,
                ..Default::default()
            }
        );
        held.into_iter().for_each(|extents| arena.free(extents));
        assert!(!arena.table_full());
        assert!(arena.allocate(1000 * UNIT_BYTES).is_some());
    }

    #[test]
    fn the_region_table_is_bounded_at_both_ends() {
        assert_eq!(regions_for(1), 1 + REGIONS_SLACK);
        assert_eq!(regions_for(REGIONS_MIN), REGIONS_MIN + REGIONS_SLACK);
        assert_eq!(regions_for(4 << 20), (1 << 20) + REGIONS_SLACK);
        assert_eq!(regions_for(u32::MAX), REGIONS_MAX + REGIONS_SLACK);
    }

    #[test]
    fn a_range_of_an_object_maps_to_parts_of_its_extents() {
        let mut arena = arena(4 * MIB);
        let mut held: Vec<_> = (0..4).map(|_| arena.allocate(MIB).unwrap()).collect();
        arena.free(held.swap_remove(2));
        arena.free(held.swap_remove(0));
        let object = arena.allocate(2 * MIB).unwrap();
        assert_eq!(object.count(), 2);
        let parts = object.range(MIB - 10, 30).unwrap();
        assert_eq!(
            parts.iter().map(|part| part.len).collect::<Vec<_>>(),
            [10, 20]
        );
        let extents: Vec<_> = object.iter().collect();
        assert_eq!(parts[0].end(), extents[0].end());
        assert_eq!(parts[1].offset, extents[1].offset);
        assert_eq!(object.range(0, 2 * MIB).unwrap(), extents);
        assert_eq!(object.range(2 * MIB, 0), Some(vec![]));
        assert_eq!(object.range(2 * MIB, 1), None);
        assert_eq!(object.range(1, u64::MAX), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Allocate(u64),
        Free(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let len = prop_oneof![
            1..300_000u64,
            1..6 * MIB,
            (1..40u64).prop_map(|n| n * UNIT_BYTES)
        ];
        let step = prop_oneof![
            3 => len.prop_map(Step::Allocate),
            2 => any::<prop::sample::Index>().prop_map(Step::Free),
        ];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        /// The model is a plain map of units: who holds each of them.
        #[test]
        fn extents_never_overlap_and_are_accounted_exactly(
            units in 1u64..8192,
            steps in steps(),
        ) {
            let mut arena = arena(units * UNIT_BYTES);
            let mut taken = vec![false; units as usize];
            let mut held: Vec<Extents> = Vec::new();
            let span = |extent: Extent| {
                let first = extent.offset / UNIT_BYTES;
                first as usize..(first + extent.len.div_ceil(UNIT_BYTES)) as usize
            };
            for step in steps {
                match step {
                    Step::Allocate(len) => {
                        let free = taken.iter().filter(|taken| !**taken).count() as u64;
                        let sure = len <= arena.largest_free();
                        let Some(extents) = arena.allocate(len) else {
                            prop_assert!(!sure, "refused {len}, largest {}", arena.largest_free());
                            continue;
                        };
                        prop_assert!(len.div_ceil(UNIT_BYTES) <= free);
                        prop_assert!(!sure || extents.is_contiguous());
                        prop_assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), len);
                        for extent in extents.iter() {
                            prop_assert_eq!(extent.offset % UNIT_BYTES, 0);
                            prop_assert!(extent.len > 0 && extent.end() <= arena.capacity());
                            for unit in &mut taken[span(extent)] {
                                prop_assert!(!*unit, "overlap");
                                *unit = true;
                            }
                        }
                        held.push(extents);
                    }
                    Step::Free(index) if !held.is_empty() => {
                        let extents = held.swap_remove(index.index(held.len()));
                        extents.iter().for_each(|extent| taken[span(extent)].fill(false));
                        arena.free(extents);
                    }
                    Step::Free(_) => {}
                }
                let used = taken.iter().filter(|taken| **taken).count() as u64 * UNIT_BYTES;
                prop_assert_eq!(arena.used_bytes(), used);
                prop_assert_eq!(arena.free_bytes() + used, arena.capacity());
                prop_assert_eq!(arena.objects(), held.len() as u64);
                let extents: usize = held.iter().map(Extents::count).sum();
                prop_assert_eq!(arena.extents(), extents as u64);
            }
            held.into_iter().for_each(|extents| arena.free(extents));
            prop_assert_eq!((arena.used_bytes(), arena.extents()), (0, 0));
            let all = arena.allocate(arena.capacity());
            prop_assert!(all.is_some());
        }
    }
}
