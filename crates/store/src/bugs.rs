//! Planted faults, to show that the checks of the simulator find them.

/// Which faults are active.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Bugs {
    /// A publish is sent when space is granted, before the bytes are there.
    pub publish_before_commit: bool,
    /// Bytes are given back when the retract is sent, not when it is granted.
    pub reclaim_before_grant: bool,
    /// A publish without an answer in time drops the local replica instead of being sent again.
    pub rollback_on_missing_answer: bool,
    /// Reads look up by name only.
    pub read_without_version: bool,
    /// Versions that were freed or retired may be written again.
    pub write_not_one_shot: bool,
}
