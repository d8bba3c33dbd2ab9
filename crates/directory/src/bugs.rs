//! Faults that are planted on purpose, to show that the checks find them.

/// Which faults are on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Bugs {
    /// Numbered batches are applied whatever their number, and a publish is believed whoever was
    /// chosen to hold it.
    pub no_sequence_numbers: bool,
}
