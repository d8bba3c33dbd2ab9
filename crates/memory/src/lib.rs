//! Raw memory: mappings, segments, caller memory, copies, aligned buffers, and the machine's limits.
//!
//! Owns: every pointer of the workspace. The rest of the code names bytes by offset and length and
//! gets bounded copies, checksums and I/O slices from here, so it can forbid `unsafe`.
//!
//! Must never: decide which bytes are free or whose they are (that is the arena and the index of
//! the node), do network or disk I/O, or hand out a plain reference to bytes of a segment that
//! outlives the call it was made for.
//!
//! **Who guarantees exclusive use.** Bounds are checked here; exclusiveness is not, it follows from
//! the extents of the node: bytes are written only by the holder of a reserved extent, and read
//! only while the replica is committed and pinned. Writing a range while it is read is a bug of the
//! caller; builds with debug assertions keep a ledger of the ranges in use and panic on it (`usage`).
//!
//! Start reading at [`segment::Segment`], then [`slices`].
#![expect(
    unsafe_code,
    reason = "mappings, non-temporal copies and caller memory need raw pointers"
)]

pub mod buffer;
pub mod copy;
pub mod error;
pub mod limits;
mod mapping;
pub mod probe;
pub mod region;
pub mod scattered;
pub mod segment;
pub mod slices;
mod usage;
