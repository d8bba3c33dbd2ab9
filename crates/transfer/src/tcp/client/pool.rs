//! Connections that are not in use, by peer, and how many there are in all.

use super::connection::Connection;
use crate::tcp::counters::{Counters, count, lower};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use snowskin_types::time::{Millis, Now};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A batch that waits until it may use a connection; readable when it should try again.
#[derive(Debug)]
pub(super) struct Waiter {
    event: OwnedFd,
    called: AtomicBool,
}

impl Waiter {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Waiter {
            event,
            called: AtomicBool::new(false),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// True when it was called since it was queued.
    pub(super) fn was_called(&self) -> bool {
        self.called.load(Ordering::Acquire)
    }

    fn call(&self) {
        self.called.store(true, Ordering::Release);
        // A full counter would be readable as well.
        rustix::io::write(&self.event, &1u64.to_ne_bytes()).ok();
    }
}

#[derive(Debug, Default)]
struct Peer {
    idle: Vec<Connection>,
    /// Connections in all, idle or in use.
    open: usize,
    waiters: VecDeque<Weak<Waiter>>,
}

/// What a batch that wants a connection gets.
pub(super) enum Taken {
    /// One that is open and was idle.
    Idle(Box<Connection>),
    /// The right to open one.
    MayOpen,
    /// All are in use; the waiter will be called.
    Wait,
}

#[derive(Debug)]
pub(super) struct Pool {
    per_peer: usize,
    peers: Mutex<HashMap<Arc<str>, Peer>>,
    counters: Arc<Counters>,
}

impl Pool {
    pub(super) fn new(per_peer: usize, counters: Arc<Counters>) -> Self {
        Pool {
            per_peer,
            peers: Mutex::default(),
            counters,
        }
    }

    /// Takes an idle connection, or the right to open one; else queues the waiter, if one is given.
    pub(super) fn take(&self, address: &Arc<str>, waiter: Option<&Arc<Waiter>>) -> Taken {
        let mut peers = self.peers.lock();
        let peer = peers.entry(Arc::clone(address)).or_default();
        while let Some(mut connection) = peer.idle.pop() {
            if connection.look().is_ok() {
                return Taken::Idle(Box::new(connection));
            }
            peer.open -= 1;
            lower(&self.counters.connections);
        }
        if peer.open < self.per_peer {
            peer.open += 1;
            count(&self.counters.connections);
            return Taken::MayOpen;
        }
        if let Some(waiter) = waiter {
            waiter.called.store(false, Ordering::Release);
            peer.waiters.push_back(Arc::downgrade(waiter));
        }
        Taken::Wait
    }

    /// Gives a connection back that can be used again.
    pub(super) fn give(&self, connection: Connection) {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get_mut(connection.address()) {
            peer.idle.push(connection);
            Self::call_next(peer);
        }
    }

    /// Gives back the right to a connection that has ended.
    pub(super) fn ended(&self, address: &Arc<str>) {
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get_mut(address) {
            peer.open = peer.open.saturating_sub(1);
            lower(&self.counters.connections);
            Self::call_next(peer);
            if peer.open == 0 && peer.waiters.is_empty() {
                peers.remove(address);
            }
        }
    }

    /// Passes a call on that its waiter does not need any more.
    pub(super) fn pass_on(&self, address: &Arc<str>) {
        if let Some(peer) = self.peers.lock().get_mut(address) {
            Self::call_next(peer);
        }
    }

    fn call_next(peer: &mut Peer) {
        while let Some(waiter) = peer.waiters.pop_front() {
            if let Some(waiter) = waiter.upgrade() {
                waiter.call();
                return;
            }
        }
    }

    /// Pings idle connections, closes dead ones and those that were not used for `idle`.
    pub(super) fn look_after(&self, now: Now, idle: Millis) {
        let addresses: Vec<Arc<str>> = self.peers.lock().keys().cloned().collect();
        for address in addresses {
            // One at a time, so that most stay available; a round is over when all have been seen.
            let rounds = self
                .peers
                .lock()
                .get(&address)
                .map_or(0, |peer| peer.idle.len());
            for _ in 0..rounds {
                let taken = self
                    .peers
                    .lock()
                    .get_mut(&address)
                    .and_then(|peer| (!peer.idle.is_empty()).then(|| peer.idle.remove(0)));
                let Some(mut connection) = taken else { break };
                match connection.look_after(now, idle) {
                    Ok(()) => self.give(connection),
                    Err(reason) => {
                        tracing::debug!(peer = %address, %reason, "idle data connection closed");
                        drop(connection);
                        self.ended(&address);
                    }
                }
            }
        }
    }

    /// Closes idle connections.
    pub(super) fn forget(&self, address: Option<&str>) {
        let mut peers = self.peers.lock();
        for (_, peer) in peers
            .iter_mut()
            .filter(|(of, _)| address.is_none_or(|a| a == &***of))
        {
            for connection in peer.idle.drain(..) {
                drop(connection);
                peer.open -= 1;
                lower(&self.counters.connections);
            }
            for _ in 0..self.per_peer {
                Self::call_next(peer);
            }
        }
        peers.retain(|_, peer| peer.open > 0 || !peer.waiters.is_empty());
    }
}
