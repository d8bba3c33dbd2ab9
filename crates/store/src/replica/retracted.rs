use super::Hold;
use crate::arena::Arena;

/// The directory does not name it; the bytes go once no read holds them.
#[must_use]
#[derive(Debug)]
pub(crate) struct Retracted(pub(super) Hold);

impl Retracted {
    /// Gives the bytes back. The caller has seen the last pin go.
    pub(crate) fn reclaim(self, arena: &mut Arena) {
        self.0.give_back(arena);
    }
}
