//! Operations under way together, driven by their caller.

use super::Shared;
use super::connection::{Connection, Operations};
use super::operation::Under;
use super::peer::Peer;
use crate::tcp::counters::{add, count};
use crate::transport::{Batch, Completion, Operation, OperationId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowskin_types::error::Code;
use snowskin_types::time::{Millis, Now};
use std::collections::HashMap;
use std::sync::Arc;

/// Longest wait while a name is being looked up.
const LOOKUP_POLL: Millis = Millis(5);

#[derive(Debug)]
pub(super) struct TcpBatch<'m> {
    shared: Arc<Shared>,
    operations: Operations<'m>,
    peers: Vec<Peer>,
    finished: Vec<Completion<'m>>,
    next: u64,
    /// No deadline lies before this.
    next_deadline: Now,
}

impl<'m> TcpBatch<'m> {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        TcpBatch {
            shared,
            operations: HashMap::new(),
            peers: Vec::new(),
            finished: Vec::new(),
            next: 0,
            next_deadline: Now::NEVER,
        }
    }

    fn peer(&mut self, address: &Arc<str>) -> &mut Peer {
        // A batch has few peers.
        let found = self.peers.iter().position(|peer| peer.address == *address);
        let index = found.unwrap_or_else(|| {
            self.peers.push(Peer::new(Arc::clone(address)));
            self.peers.len() - 1
        });
        &mut self.peers[index]
    }

    /// Moves what can be moved without blocking.
    fn advance(&mut self, now: Now) {
        let shared = Arc::clone(&self.shared);
        let counters = &shared.counters;
        for peer in &mut self.peers {
            peer.drive(&mut self.operations, &mut self.finished, &shared, now);
        }
        if now >= self.next_deadline {
            let late = self
                .operations
                .iter()
                .filter(|(_, under)| under.operation.deadline <= now);
            let late: Vec<OperationId> = late.map(|(id, _)| *id).collect();
            for id in late {
                if let Some(under) = self.quiet(id) {
                    count(&counters.deadline_missed);
                    let waited = now.since(under.started).duration();
                    let text = format!("the deadline passed after {waited:?}");
                    let failure = under.failure(Code::RpcTimeout, text);
                    self.finished.push(under.end(Err(failure)));
                }
            }
            let deadlines = self
                .operations
                .values()
                .map(|under| under.operation.deadline);
            self.next_deadline = deadlines.min().unwrap_or(Now::NEVER);
        }
    }

    /// Takes an operation out; nothing touches its memory any more.
    fn quiet(&mut self, id: OperationId) -> Option<Under<'m>> {
        let under = self.operations.remove(&id)?;
        let shared = Arc::clone(&self.shared);
        let address = &under.operation.peer.address;
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == *address) {
            peer.drop_operation(id, &mut self.operations, &mut self.finished, &shared);
        }
        Some(under)
    }

    fn hand_over(&mut self, completions: &mut Vec<Completion<'m>>) {
        let ended = self.finished.len() as u64;
        self.shared
            .counters
            .requests_under_way
            .fetch_sub(ended, std::sync::atomic::Ordering::Relaxed);
        completions.append(&mut self.finished);
    }

    /// Waits until a socket is ready, or `until`.
    fn wait_for_sockets(&self, now: Now, until: Now) {
        let mut connections = self.peers.iter().flat_map(|peer| &peer.connections);
        if connections.any(Connection::has_more) {
            return;
        }
        let patience = self
            .peers
            .iter()
            .map(|peer| peer.patience_ends(&self.shared))
            .min();
        let until = until
            .min(self.next_deadline)
            .min(patience.unwrap_or(Now::NEVER));
        let mut left = now.until(until);
        if self.peers.iter().any(Peer::is_resolving) {
            left = left.min(LOOKUP_POLL);
        }
        let mut watched: Vec<PollFd<'_>> = Vec::with_capacity(4);
        for peer in &self.peers {
            for connection in &peer.connections {
                let mut flags = PollFlags::IN;
                flags.set(PollFlags::OUT, connection.wants_write());
                watched.push(PollFd::new(connection.stream(), flags));
            }
            if let Some(waiter) = peer.waiter() {
                watched.push(PollFd::from_borrowed_fd(waiter.fd(), PollFlags::IN));
            }
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.0 / 1_000).unwrap_or(i64::MAX),
            tv_nsec: (left.0 % 1_000) as i64 * 1_000_000,
        };
        // An error is an interruption by a signal or a lack of kernel memory; sockets are tried
        // again either way.
        poll(&mut watched, Some(&timeout)).ok();
    }
}

impl<'m> Batch<'m> for TcpBatch<'m> {
    fn submit(&mut self, operation: Operation<'m>) -> OperationId {
        let id = OperationId(self.next);
        self.next += 1;
        let under = Under::new(id, operation, self.shared.clock.now());
        add(&self.shared.counters.requests_under_way, 1);
        if let Err(failure) = under.check() {
            self.finished.push(under.end(Err(failure)));
            return id;
        }
        self.next_deadline = self.next_deadline.min(under.operation.deadline);
        let address = Arc::clone(&under.operation.peer.address);
        self.peer(&address).submit(id, under.bytes);
        self.operations.insert(id, under);
        id
    }

    fn poll(&mut self, completions: &mut Vec<Completion<'m>>) {
        self.advance(self.shared.clock.now());
        self.hand_over(completions);
    }

    fn wait(&mut self, until: Now, completions: &mut Vec<Completion<'m>>) {
        loop {
            let now = self.shared.clock.now();
            self.advance(now);
            if !self.finished.is_empty() || self.operations.is_empty() || now >= until {
                return self.hand_over(completions);
            }
            self.wait_for_sockets(now, until);
        }
    }

    fn cancel(&mut self, id: OperationId) -> Option<Operation<'m>> {
        let mut under = self.quiet(id)?;
        under.begin_again();
        self.shared
            .counters
            .requests_under_way
            .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        Some(under.operation)
    }

    fn under_way(&self) -> usize {
        self.operations.len() + self.finished.len()
    }
}

impl Drop for TcpBatch<'_> {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        for peer in &mut self.peers {
            peer.close(&self.shared, now);
        }
        let left = self.under_way() as u64;
        let under_way = &self.shared.counters.requests_under_way;
        under_way.fetch_sub(left, std::sync::atomic::Ordering::Relaxed);
    }
}
