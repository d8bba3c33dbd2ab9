//! Reservations and pins in the hands of whoever moves bytes. Dropping one tells the store, so that
//! nothing is kept for a connection, a task or a caller that has gone.

use crate::engine::Engine;
use snowskin_runtime::spawn::Cancel;
use snowskin_store::event::{Event, Filled, ReadId, WriteId};
use snowskin_transfer::tcp::endpoint::ReadGrant;
use snowskin_types::access::Extent;
use snowskin_types::error::Failure;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use tokio::sync::oneshot;

/// Where one message goes: to a task or to a thread. Sending never waits.
#[derive(Debug)]
pub(crate) enum Tell<T> {
    Task(oneshot::Sender<T>),
    /// A queue of one, used once.
    Thread(SyncSender<T>),
}

impl<T> Tell<T> {
    /// A receiver that has gone has a guard that tells so.
    pub(crate) fn tell(self, message: T) {
        match self {
            Tell::Task(task) => drop(task.send(message)),
            Tell::Thread(thread) => drop(thread.try_send(message)),
        }
    }
}

/// The store's first word on a write.
#[derive(Debug)]
pub(crate) enum Started {
    /// The bytes go there.
    Granted(Arc<[Extent]>),
    /// The bytes are not wanted.
    Answered(Result<(), Failure>),
}

/// How far a write has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No word yet.
    Waiting,
    /// The extents are the writer's.
    Granted,
    /// The extents are the store's again; the answer is awaited.
    Filled,
}

/// What the engine keeps of a write under way.
#[derive(Debug)]
pub(crate) struct WriteSlot {
    pub(crate) stage: Stage,
    pub(crate) start: Option<Tell<Started>>,
    pub(crate) answer: Option<Tell<Result<(), Failure>>>,
    pub(crate) cut: Cancel,
}

/// A write under way, from its start to its answer.
#[derive(Debug)]
pub(crate) struct WriteGuard {
    engine: Arc<Engine>,
    write: WriteId,
    cut: Cancel,
    extents: Arc<[Extent]>,
}

impl WriteGuard {
    /// Asks for space. The first word comes by `start`, maybe before this returns.
    pub(crate) fn begin(
        engine: &Arc<Engine>,
        request: snowskin_types::access::WriteRequest,
        start: Tell<Started>,
    ) -> Self {
        let write = engine.next_write();
        let cut = Cancel::new();
        let slot = WriteSlot {
            stage: Stage::Waiting,
            start: Some(start),
            answer: None,
            cut: cut.clone(),
        };
        // Made before the store hears of it, so that no panic in between leaves the write behind.
        let guard = WriteGuard {
            engine: Arc::clone(engine),
            write,
            cut,
            extents: Arc::new([]),
        };
        engine.begin_write(write, slot, Event::WriteStart { write, request });
        guard
    }

    /// Takes note of the grant.
    pub(crate) fn granted(mut self, extents: Arc<[Extent]>) -> Self {
        self.extents = extents;
        self
    }

    pub(crate) fn grant(&self) -> Arc<[Extent]> {
        Arc::clone(&self.extents)
    }

    pub(crate) fn cut_token(&self) -> Cancel {
        self.cut.clone()
    }

    /// The extents are the store's again. The answer comes by `answer`; it is dropped unused when
    /// there will be none.
    pub(crate) fn filled(&self, filled: Filled, answer: Tell<Result<(), Failure>>) {
        self.engine.end_write(self.write, filled, answer);
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.engine.drop_write(self.write);
    }
}

/// A pinned read.
#[derive(Debug)]
pub(crate) struct ReadPin {
    pub(crate) engine: Arc<Engine>,
    pub(crate) read: ReadId,
    pub(crate) grant: ReadGrant,
    pub(crate) cut: Cancel,
}

impl ReadPin {
    /// Tells that bytes move on.
    pub(crate) fn moved(&self) {
        self.engine.feed(Event::ReadProgress { read: self.read });
    }
}

impl Drop for ReadPin {
    fn drop(&mut self) {
        self.engine.end_read(self.read);
    }
}
