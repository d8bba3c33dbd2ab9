//! Runners: carry the steps of a plan out on the caller's thread and feed the answers back.
//!
//! Questions to the master are asked only while no transfer is under way: a thread that waits for
//! the master moves no bytes, and a peer whose bytes are not taken would look like one that makes
//! no progress. In the usual call that costs nothing, as its only question comes first.

pub(crate) mod get;
pub(crate) mod put;

use crate::plan::Ticket;
use snowskin_transfer::transport::OperationId;
use std::collections::HashMap;

/// The transfers under way: tickets of the plan against operations of the batch.
#[derive(Debug, Default)]
pub(crate) struct Live {
    by_id: HashMap<OperationId, (Ticket, usize)>,
    by_ticket: HashMap<Ticket, OperationId>,
}

impl Live {
    pub(crate) fn add(&mut self, id: OperationId, ticket: Ticket, item: usize) {
        self.by_id.insert(id, (ticket, item));
        self.by_ticket.insert(ticket, id);
    }

    /// Forgets a completed operation.
    pub(crate) fn end(&mut self, id: OperationId) -> Option<(Ticket, usize)> {
        let (ticket, item) = self.by_id.remove(&id)?;
        self.by_ticket.remove(&ticket);
        Some((ticket, item))
    }

    /// Forgets a transfer that the plan gave up.
    pub(crate) fn abort(&mut self, ticket: Ticket) -> Option<OperationId> {
        let id = self.by_ticket.remove(&ticket)?;
        self.by_id.remove(&id);
        Some(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
