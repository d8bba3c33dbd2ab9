//! The writer thread of the state directory: takes records in order, groups what waits into one
//! transaction, tells which are durable. After the first failed write nothing more is written: what a
//! failed sync left behind is not known, so only a restart, which reads it back, may go on.

use crate::state::StateStore;
use snowskin_directory::effect::Record;
use snowskin_directory::event::PersistId;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Records that may wait for the writer.
const QUEUE_MAX: usize = 16_384;
/// Records of one transaction.
const GROUP_MAX: usize = 1_024;

/// Called on the writer's thread with the records of one transaction and whether they are durable.
pub(crate) type Done = Box<dyn Fn(&[PersistId], bool) + Send>;

/// The way to the writer. Dropping it lets the writer finish what waits and end.
#[derive(Debug)]
pub(crate) struct Journal {
    queue: SyncSender<(PersistId, Record)>,
}

impl Journal {
    /// The way to the writer, and the writer itself, to be run on a thread of its own. It ends when
    /// the journal was dropped and everything that waited is written.
    pub(crate) fn new(store: StateStore, done: Done) -> (Self, impl FnOnce() + Send + 'static) {
        let (queue, records) = sync_channel(QUEUE_MAX);
        (Journal { queue }, move || {
            write_all(&store, &records, &done)
        })
    }

    /// Hands a record over.
    pub(crate) fn write(&self, id: PersistId, record: Record) -> Handed {
        match self.queue.try_send((id, record)) {
            Ok(()) => Handed::Over,
            Err(TrySendError::Full(_)) => Handed::Full,
            Err(TrySendError::Disconnected(_)) => Handed::Ended,
        }
    }
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// It waits for the writer, who will tell.
    Over,
    /// Too many wait; the directory tries again by itself.
    Full,
    /// There is no writer any more.
    Ended,
}

fn write_all(store: &StateStore, records: &Receiver<(PersistId, Record)>, done: &Done) {
    let mut poisoned = false;
    while let Ok(first) = records.recv() {
        let (mut ids, mut group) = (vec![first.0], vec![first.1]);
        while group.len() < GROUP_MAX
            && let Ok((id, record)) = records.try_recv()
        {
            ids.push(id);
            group.push(record);
        }
        if !poisoned && let Err(error) = store.write(&group) {
            poisoned = true;
            tracing::error!(%error, "the state directory cannot be written; removes and replaces are refused until a restart");
        }
        done(&ids, !poisoned);
    }
}
