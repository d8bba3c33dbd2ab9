//! Batches that run beside their callers, on a few threads.

use crate::counters::{Counters, count};
use crate::error::EngineError;
use crate::mover::{self, Until};
use crate::open::Core;
use crate::plan::Plan;
use crate::request::{BatchId, Opcode, Status};
use parking_lot::{Condvar, Mutex};
use snowskin_runtime::rng;
use snowskin_runtime::thread::Thread;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most threads. So many peers that do not answer hold nobody else up.
const THREADS_MAX: usize = 16;
/// Most batches that have not ended.
const UNDER_WAY_MAX: usize = 1024;
/// Most ended batches that are remembered until somebody asks.
const ENDED_MAX: usize = 8192;
/// Who waits for a batch gives it so much longer than its own time.
const SLACK: Duration = Duration::from_secs(1);
/// Numbers of batches are below 2^63.
const NUMBER_MAX: u64 = (1 << 63) - 1;

/// What a thread carries out.
#[derive(Debug)]
struct Work {
    id: u64,
    peer: String,
    opcode: Opcode,
    plan: Plan,
    until: Until,
}

#[derive(Debug, Clone, Copy)]
enum Batch {
    UnderWay { until: Instant },
    Ended(Status),
}

#[derive(Debug, Default)]
struct State {
    batches: HashMap<u64, Batch>,
    queue: VecDeque<Work>,
    /// Ended ones, oldest first; some of them were asked for since.
    ended: VecDeque<u64>,
    under_way: usize,
    next: u64,
    idle: usize,
    threads: Vec<Thread>,
    closing: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told when there is work, or no more.
    work: Condvar,
    /// Told when a batch has ended.
    end: Condvar,
    counters: Arc<Counters>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Batches {
    shared: Arc<Shared>,
}

impl Batches {
    /// # Errors
    /// When the system gives no randomness.
    pub(crate) fn new(counters: Arc<Counters>) -> std::io::Result<Self> {
        let state = State {
            // Numbers of other engines and of earlier lives are not met by chance.
            next: rng::unique()? >> 2,
            ..State::default()
        };
        Ok(Batches {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work: Condvar::new(),
                end: Condvar::new(),
                counters,
            }),
        })
    }

    /// Takes a batch in.
    pub(crate) fn submit(
        &self,
        core: &Arc<Core>,
        peer: String,
        opcode: Opcode,
        plan: Plan,
        until: Until,
    ) -> Result<BatchId, EngineError> {
        let mut state = self.shared.state.lock();
        if state.closing {
            return Err(EngineError::NotOpen);
        }
        if state.under_way >= UNDER_WAY_MAX {
            return Err(EngineError::TooMany { max: UNDER_WAY_MAX });
        }
        if state.idle <= state.queue.len() && state.threads.len() < THREADS_MAX {
            self.start_thread(&mut state, core)?;
        }
        state.next = state.next % NUMBER_MAX + 1;
        let id = state.next;
        let batch = Batch::UnderWay {
            until: until.instant,
        };
        state.batches.insert(id, batch);
        state.under_way += 1;
        state.queue.push_back(Work {
            id,
            peer,
            opcode,
            plan,
            until,
        });
        drop(state);
        self.shared.work.notify_one();
        Ok(BatchId(id))
    }

    fn start_thread(&self, state: &mut State, core: &Arc<Core>) -> Result<(), EngineError> {
        let (shared, core) = (Arc::clone(&self.shared), Arc::clone(core));
        let thread = Thread::start("engine-batch", move || shared.work_on(&core));
        match thread {
            Ok(thread) => state.threads.push(thread),
            // The others will come to it.
            Err(_) if !state.threads.is_empty() => {}
            Err(error) => {
                return Err(EngineError::System {
                    step: "start a thread",
                    reason: error.to_string(),
                });
            }
        }
        Ok(())
    }

    /// How far a batch is. Done and failed ones are forgotten with this.
    pub(crate) fn status(&self, id: BatchId) -> Result<Status, EngineError> {
        let mut state = self.shared.state.lock();
        let status = match state.batches.get(&id.0) {
            None => return Err(EngineError::UnknownBatch { id: id.0 }),
            Some(Batch::UnderWay { .. }) => Status::Running,
            Some(Batch::Ended(status)) => *status,
        };
        if matches!(status, Status::Done | Status::Failed) {
            state.batches.remove(&id.0);
        }
        Ok(status)
    }

    /// Waits until all have ended, and forgets them. Tells the first that did not succeed.
    pub(crate) fn wait(&self, ids: &[BatchId]) -> Result<(), EngineError> {
        let mut first = Ok(());
        for id in ids {
            first = first.and(self.wait_one(id.0));
        }
        first
    }

    fn wait_one(&self, id: u64) -> Result<(), EngineError> {
        let mut state = self.shared.state.lock();
        loop {
            match state.batches.get(&id).copied() {
                None => return Err(EngineError::UnknownBatch { id }),
                Some(Batch::Ended(status)) => {
                    state.batches.remove(&id);
                    return match status {
                        Status::Done => Ok(()),
                        _ => Err(EngineError::Batch { id }),
                    };
                }
                Some(Batch::UnderWay { until }) => {
                    let waited = self.shared.end.wait_until(&mut state, until + SLACK);
                    if waited.timed_out() {
                        // It ends itself; whoever asks for its status learns when.
                        return Err(EngineError::Batch { id });
                    }
                }
            }
        }
    }

    /// Ends everything, until the deadline; true when all threads have ended.
    pub(crate) fn close(&self, deadline: Instant) -> bool {
        let (threads, dropped) = {
            let mut state = self.shared.state.lock();
            state.closing = true;
            let dropped: Vec<u64> = state.queue.drain(..).map(|work| work.id).collect();
            (std::mem::take(&mut state.threads), dropped)
        };
        for id in dropped {
            self.shared.ended(id, Status::Failed);
        }
        self.shared.work.notify_all();
        let mut all = true;
        for thread in threads {
            if let Err(error) = thread.join(deadline) {
                tracing::error!(%error, "a thread of the engine did not end well");
                count(&self.shared.counters.ended_late);
                all = false;
            }
        }
        all
    }
}

/// Ends a batch, also when its thread unwinds.
struct Ending<'s> {
    shared: &'s Shared,
    id: u64,
    status: Status,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.shared.ended(self.id, self.status);
    }
}

impl Shared {
    fn work_on(&self, core: &Core) {
        while let Some(work) = self.next() {
            let mut ending = Ending {
                shared: self,
                id: work.id,
                status: Status::Failed,
            };
            let result = mover::carry_out(core, &work.peer, work.opcode, &work.plan, work.until);
            ending.status = match result {
                Ok(()) => Status::Done,
                Err(error) => {
                    core.tell_failure(&error);
                    match error.is_timeout() {
                        true => Status::TimedOut,
                        false => Status::Failed,
                    }
                }
            };
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                return Some(work);
            }
            if state.closing {
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }

    fn ended(&self, id: u64, status: Status) {
        let mut state = self.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        state.batches.insert(id, Batch::Ended(status));
        state.ended.push_back(id);
        while state.ended.len() > ENDED_MAX {
            let oldest = state.ended.pop_front();
            if oldest.is_some_and(|oldest| state.batches.remove(&oldest).is_some()) {
                count(&self.counters.batches_forgotten);
            }
        }
        drop(state);
        self.end.notify_all();
    }
}
