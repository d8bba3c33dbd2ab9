//! What a batch has to do with one peer: operations that wait, and the connections that it uses.

use super::Shared;
use super::connection::{Connection, LinkError, Operations};
use super::pool::{Taken, Waiter};
use crate::tcp::counters::count;
use crate::transport::{Completion, OperationId};
use snowskin_runtime::net::Lookup;
use snowskin_types::time::Now;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection that is to be opened once its address is known.
#[derive(Debug)]
struct Dialling {
    lookup: Lookup,
    since: Now,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: Arc<str>,
    queue: VecDeque<OperationId>,
    queued_bytes: u64,
    pub(super) connections: Vec<Connection>,
    dialling: Option<Dialling>,
    /// Addresses of the name that have not been tried yet.
    candidates: VecDeque<SocketAddr>,
    waiter: Option<Arc<Waiter>>,
    /// It stands in the pool's queue of waiters.
    waiting: bool,
    /// A further connection could not be opened; the ones that there are must do.
    fruitless: bool,
}

impl Peer {
    pub(super) fn new(address: Arc<str>) -> Self {
        Peer {
            address,
            queue: VecDeque::new(),
            queued_bytes: 0,
            connections: Vec::new(),
            dialling: None,
            candidates: VecDeque::new(),
            waiter: None,
            waiting: false,
            fruitless: false,
        }
    }

    pub(super) fn submit(&mut self, id: OperationId, bytes: u64) {
        self.queue.push_back(id);
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }

    /// The waiter, while it waits for its call.
    pub(super) fn waiter(&self) -> Option<&Arc<Waiter>> {
        self.waiter.as_ref().filter(|_| self.waiting)
    }

    /// True while a name is being looked up, which cannot be waited for together with sockets.
    pub(super) fn is_resolving(&self) -> bool {
        self.dialling.is_some()
    }

    /// The next moment at which something fails if nothing happens.
    pub(super) fn patience_ends(&self, shared: &Shared) -> Now {
        let connect = shared.options.connect_timeout;
        let dialling = self
            .dialling
            .as_ref()
            .map(|dialling| dialling.since + connect);
        let connections = self.connections.iter().filter(|c| c.operations() > 0);
        let connections = connections.map(|c| c.patience_ends(connect));
        dialling
            .into_iter()
            .chain(connections)
            .min()
            .unwrap_or(Now::NEVER)
    }

    /// Moves what can be moved without blocking.
    pub(super) fn drive<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) {
        self.resolve(operations, finished, shared, now);
        self.assign(operations, finished, shared, now);
        let mut index = 0;
        while index < self.connections.len() {
            let connection = &mut self.connections[index];
            match connection.drive(operations, finished, shared, now) {
                Ok(()) => index += 1,
                Err(error) => {
                    let connection = self.connections.swap_remove(index);
                    self.end_connection(connection, &error, operations, finished, shared, now);
                }
            }
        }
        if !self.queue.is_empty() {
            self.assign(operations, finished, shared, now);
        }
        self.rest(shared, now);
    }

    /// Gives connections back that have nothing to do.
    fn rest(&mut self, shared: &Shared, now: Now) {
        if !self.queue.is_empty() {
            return;
        }
        let idle = |connection: &mut Connection| connection.is_clean();
        for mut connection in self.connections.extract_if(.., idle) {
            connection.rests(now);
            shared.pool.give(connection);
        }
    }

    /// Spreads waiting operations over connections, taking further ones while it is worth it.
    fn assign<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) {
        let options = &shared.options;
        while let Some(&next) = self.queue.front() {
            let free = |c: &&mut Connection| {
                let given = c.operations();
                given == 0
                    || given < options.depth && c.load(operations) < options.bytes_per_connection
            };
            let least = self
                .connections
                .iter_mut()
                .filter(free)
                .min_by_key(|c| c.operations());
            let idle = least.as_ref().is_some_and(|c| c.operations() == 0);
            let more = 1 + self.queued_bytes / options.bytes_per_connection.max(1);
            let in_use = (self.connections.len() + usize::from(self.dialling.is_some())) as u64;
            let wanted = in_use == 0 || !self.fruitless && in_use < more;
            if !idle && wanted && self.extend(operations, finished, shared, now) {
                continue;
            }
            let free = |c: &&mut Connection| {
                let given = c.operations();
                given == 0
                    || given < options.depth && c.load(operations) < options.bytes_per_connection
            };
            let least = self
                .connections
                .iter_mut()
                .filter(free)
                .min_by_key(|c| c.operations());
            let Some(connection) = least else { return };
            self.queue.pop_front();
            let Some(under) = operations.get(&next) else {
                continue;
            };
            connection.assign(under, now);
            self.queued_bytes = self.queued_bytes.saturating_sub(under.bytes);
        }
    }

    /// Takes or begins a further connection; true when the set of connections has changed.
    fn extend<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) -> bool {
        if self.waiting {
            if !self
                .waiter
                .as_ref()
                .is_some_and(|waiter| waiter.was_called())
            {
                return false;
            }
            self.waiting = false;
            self.waiter = None;
        }
        let mut taken = shared.pool.take(&self.address, None);
        // Only who has no connection at all waits for one.
        if matches!(taken, Taken::Wait) && self.connections.is_empty() && self.dialling.is_none() {
            self.waiter = Waiter::new().ok().map(Arc::new);
            taken = shared.pool.take(&self.address, self.waiter.as_ref());
        }
        match taken {
            Taken::Idle(mut connection) => {
                connection.taken(now);
                self.connections.push(*connection);
                true
            }
            Taken::MayOpen => {
                count(&shared.counters.connections_opened);
                match Lookup::start(&self.address) {
                    Ok(lookup) => self.dialling = Some(Dialling { lookup, since: now }),
                    Err(error) => {
                        shared.pool.ended(&self.address);
                        self.unreachable(&error.into(), operations, finished);
                    }
                }
                self.resolve(operations, finished, shared, now);
                !self.fruitless
            }
            Taken::Wait => {
                self.waiting = self.waiter.is_some();
                false
            }
        }
    }

    /// Opens the connection whose address has been found.
    fn resolve<'m>(
        &mut self,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) {
        let Some(dialling) = &self.dialling else {
            return;
        };
        let result = match dialling.lookup.poll() {
            Some(result) => result,
            None if now < dialling.since + shared.options.connect_timeout => return,
            None => Err(dialling.lookup.too_slow()),
        };
        self.dialling = None;
        match result {
            Ok(addresses) => {
                self.candidates = addresses.into();
                self.open_next(None, operations, finished, shared, now);
            }
            Err(error) => {
                shared.pool.ended(&self.address);
                self.unreachable(&error.into(), operations, finished);
            }
        }
    }

    /// Tries the next address of the name; when none is left the peer is unreachable, because of `last`.
    fn open_next<'m>(
        &mut self,
        mut last: Option<LinkError>,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) {
        while let Some(candidate) = self.candidates.pop_front() {
            match Connection::open(&self.address, candidate, &shared.greeting, now) {
                Ok(connection) => return self.connections.push(connection),
                Err(error) => last = Some(error),
            }
        }
        shared.pool.ended(&self.address);
        self.unreachable(&last.unwrap_or(LinkError::Closed), operations, finished);
    }

    /// Fails everything that waits, unless another connection can still serve it.
    fn unreachable<'m>(
        &mut self,
        error: &LinkError,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
    ) {
        self.fruitless = true;
        if self.connections.iter().any(Connection::is_open) {
            return;
        }
        self.queued_bytes = 0;
        for id in self.queue.drain(..) {
            let under = operations.remove(&id);
            finished.extend(under.map(|under| {
                let failure = error.failure(under.stage());
                under.end(Err(failure))
            }));
        }
    }

    fn requeue(&mut self, id: OperationId, bytes: u64) {
        self.queue.push_front(id);
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }

    /// A connection has failed: its operations go to another one where that is safe, or fail.
    fn end_connection<'m>(
        &mut self,
        connection: Connection,
        error: &LinkError,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
        now: Now,
    ) {
        tracing::debug!(peer = %self.address, %error, "data connection failed");
        let was_open = connection.is_open();
        // A connection that the peer closed while it was idle says nothing about the peer.
        let stale = connection.is_unproven() && error.may_be_stale();
        if matches!(error, LinkError::Stalled(_)) {
            count(&shared.counters.stalled);
        }
        for id in connection.abandon().into_iter().rev() {
            let Some(under) = operations.get_mut(&id) else {
                continue;
            };
            if let Some(result) = under.verdict.take() {
                let under = operations.remove(&id);
                finished.extend(under.map(|under| under.end_write(result, &shared.counters)));
                continue;
            }
            // Nothing of one that was never opened has reached the peer.
            if !was_open || stale && !under.resent {
                if was_open {
                    under.resent = true;
                    count(&shared.counters.resent);
                }
                under.begin_again();
                let bytes = under.bytes;
                self.requeue(id, bytes);
                continue;
            }
            let failure = error.failure(under.stage());
            let under = operations.remove(&id);
            finished.extend(under.map(|under| under.end(Err(failure))));
        }
        if was_open {
            shared.pool.ended(&self.address);
        } else if matches!(error, LinkError::Dial(_)) && !self.candidates.is_empty() {
            self.open_next(None, operations, finished, shared, now);
        } else {
            shared.pool.ended(&self.address);
            self.unreachable(error, operations, finished);
        }
    }

    /// Stops caring for an operation; its memory is quiet after this.
    pub(super) fn drop_operation<'m>(
        &mut self,
        id: OperationId,
        operations: &mut Operations<'m>,
        finished: &mut Vec<Completion<'m>>,
        shared: &Shared,
    ) {
        self.queue.retain(|queued| *queued != id);
        let mut index = 0;
        while index < self.connections.len() {
            if self.connections[index].drop_operation(id).is_ok() {
                index += 1;
                continue;
            }
            let connection = self.connections.swap_remove(index);
            let others = connection.abandon();
            shared.pool.ended(&self.address);
            for other in others.into_iter().rev().filter(|other| *other != id) {
                let Some(under) = operations.get_mut(&other) else {
                    continue;
                };
                // Both reads and one-shot writes may be sent again.
                if under.resent {
                    let failure = LinkError::Closed.failure(under.stage());
                    let under = operations.remove(&other);
                    finished.extend(under.map(|under| under.end(Err(failure))));
                    continue;
                }
                under.resent = true;
                count(&shared.counters.resent);
                under.begin_again();
                let bytes = under.bytes;
                self.requeue(other, bytes);
            }
        }
    }

    /// Ends everything; connections amid something are closed.
    pub(super) fn close(&mut self, shared: &Shared, now: Now) {
        if self.dialling.take().is_some() {
            shared.pool.ended(&self.address);
        }
        for mut connection in self.connections.drain(..) {
            if connection.is_clean() {
                connection.rests(now);
                shared.pool.give(connection);
            } else {
                connection.abandon();
                shared.pool.ended(&self.address);
            }
        }
        if self.waiter().is_some_and(|waiter| waiter.was_called()) {
            // The call was meant for somebody who wants a connection.
            shared.pool.pass_on(&self.address);
        }
        self.waiting = false;
    }
}
