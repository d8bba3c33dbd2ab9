use super::{Committed, Hold};

/// Sound bytes that no index serves yet.
#[must_use]
#[derive(Debug)]
pub(crate) struct Filled(pub(super) Hold);

impl Filled {
    /// The index serves it from now on.
    pub(crate) fn commit(self) -> Committed {
        Committed(self.0)
    }
}
