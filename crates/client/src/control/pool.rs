//! The connections to one master: a bounded number, opened when wanted, with pauses after failures.

use super::link::{Cutter, Link};
use crate::counters::Counters;
use parking_lot::{Condvar, Mutex};
use snowskin_proto::hello::Greeting;
use snowskin_runtime::backoff::Backoff;
use snowskin_runtime::clock::Clock;
use snowskin_runtime::rng::{self, Random};
use snowskin_types::limits::CONNECT_TIMEOUT;
use snowskin_types::{Code, Failure, Now, Retry, Stage};
use std::sync::Arc;

struct State {
    idle: Vec<Link>,
    /// Connections that are idle, lent, or being opened.
    open: usize,
    /// Those that are lent, so that closing can end them.
    lent: Vec<Cutter>,
    /// None is opened before this moment.
    not_before: Now,
    backoff: Backoff,
    random: Random,
    /// Why the last attempt failed, until one succeeds.
    failure: Option<Failure>,
    /// A connection was lost and none has been opened since.
    lost: bool,
    closed: bool,
}

/// Lends connections.
pub(super) struct Pool {
    peer: Arc<str>,
    greeting: Greeting,
    max: usize,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Pool {
    pub(super) fn new(
        peer: String,
        greeting: Greeting,
        max: usize,
        clock: Arc<dyn Clock>,
        counters: Arc<Counters>,
    ) -> Result<Self, Failure> {
        let random = rng::system().map_err(|error| {
            Failure::new(
                Code::Internal,
                Stage::Session,
                format!("the system gives no randomness: {error}"),
            )
        })?;
        Ok(Pool {
            peer: peer.into(),
            greeting,
            max,
            clock,
            counters,
            state: Mutex::new(State {
                idle: Vec::new(),
                open: 0,
                lent: Vec::new(),
                not_before: Now(0),
                backoff: Backoff::reconnect(),
                random,
                failure: None,
                lost: false,
                closed: false,
            }),
            changed: Condvar::new(),
        })
    }

    /// Lends a connection; opens one, again and again, when none is idle.
    pub(super) fn take(&self, deadline: Now) -> Result<Link, Failure> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Err(self.closed());
            }
            if let Some(mut link) = state.idle.pop() {
                drop(state);
                let usable = link.is_usable(self.clock.as_ref());
                state = self.state.lock();
                if usable && !state.closed {
                    state.lent.push(link.cutter());
                    return Ok(link);
                }
                state.open -= 1;
                self.note_lost(&mut state);
                continue;
            }
            let now = self.clock.now();
            if now >= deadline {
                return Err(self.why_late(&state));
            }
            let mut until = deadline;
            if state.open < self.max {
                if now >= state.not_before {
                    state.open += 1;
                    drop(state);
                    let opened = self.open(deadline);
                    state = self.state.lock();
                    match opened {
                        Ok(link) if !state.closed => {
                            state.lent.push(link.cutter());
                            return Ok(link);
                        }
                        Ok(_) => state.open -= 1,
                        Err(failure) => {
                            state.open -= 1;
                            if failure.code.retry() == Retry::Never {
                                // Another version, cluster or token: waiting does not help.
                                return Err(failure);
                            }
                            self.penalize(&mut state, failure);
                        }
                    }
                    continue;
                }
                until = until.min(state.not_before);
            }
            let left = self
                .clock
                .left(until)
                .max(std::time::Duration::from_millis(1));
            self.changed.wait_for(&mut state, left);
        }
    }

    fn open(&self, deadline: Now) -> Result<Link, Failure> {
        let patience = self.clock.left(deadline).min(CONNECT_TIMEOUT.duration());
        let until = deadline.min(self.clock.now() + CONNECT_TIMEOUT);
        let opened = Link::open(
            &self.peer,
            &self.greeting,
            self.clock.as_ref(),
            patience,
            until,
        );
        if opened.is_ok() {
            let mut state = self.state.lock();
            state.failure = None;
            state.backoff.reset();
            if std::mem::take(&mut state.lost) {
                self.counters.reconnects.add(1);
            }
        }
        opened
    }

    fn penalize(&self, state: &mut State, failure: Failure) {
        let State {
            backoff, random, ..
        } = state;
        let pause = backoff.pause(random);
        state.not_before = self.clock.now() + pause;
        state.failure = Some(failure);
        self.changed.notify_all();
    }

    fn note_lost(&self, state: &mut State) {
        self.counters.session_lost.add(1);
        state.lost = true;
    }

    /// Takes a connection back that can be used again.
    pub(super) fn give_back(&self, link: Link) {
        let mut state = self.state.lock();
        state.lent.retain(|cutter| !cutter.is_of(&link));
        if state.closed {
            state.open -= 1;
        } else {
            state.idle.push(link);
        }
        self.changed.notify_one();
    }

    /// Takes note that a connection broke. The first time costs nothing, as it may merely have been
    /// old; when a new one breaks as well, there is a pause.
    pub(super) fn lost(&self, link: Link, failure: Failure) {
        let mut state = self.state.lock();
        state.lent.retain(|cutter| !cutter.is_of(&link));
        state.open -= 1;
        if state.lost {
            self.penalize(&mut state, failure);
        } else {
            state.failure = Some(failure);
        }
        self.note_lost(&mut state);
        drop(state);
        drop(link);
        self.changed.notify_one();
    }

    pub(super) fn too_late(&self) -> Failure {
        self.why_late(&self.state.lock())
    }

    /// Why no connection could be had in time: the last attempt's failure, if there was one.
    fn why_late(&self, state: &State) -> Failure {
        state.failure.clone().unwrap_or_else(|| {
            Failure::new(
                Code::RpcTimeout,
                Stage::Session,
                format!(
                    "all {} connections to the master were in use until the deadline",
                    self.max
                ),
            )
            .with_peer(self.peer.as_ref())
        })
    }

    fn closed(&self) -> Failure {
        Failure::new(
            Code::UnavailableInStatus,
            Stage::Session,
            "the client is closed",
        )
    }

    /// Ends all connections; calls under way fail.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.open -= state.idle.len();
        state.idle.clear();
        for cutter in &state.lent {
            cutter.cut();
        }
        self.changed.notify_all();
    }
}
