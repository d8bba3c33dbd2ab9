//! Where answers go, and the answers that the shell gives by itself.

use crate::outbox::Outbox;
use parking_lot::{Condvar, Mutex};
use snowskin_types::call::{Keys, Reply, Request};
use snowskin_types::error::Stage;
use snowskin_types::limits::FRAME_BYTES_MAX;
use snowskin_types::{Code, Failure};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Bytes of keys in one page of a listing on the wire; the rest of the frame is for their lengths.
const PAGE_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Origin {
    /// To a connection, under the number that the request came with.
    Connection(Arc<Outbox>, u64),
    /// To a task.
    Task(oneshot::Sender<Reply>),
    /// To a thread.
    Thread(Arc<Slot>),
}

/// Where a thread waits for one answer.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    reply: Mutex<Option<Reply>>,
    filled: Condvar,
}

impl Slot {
    /// Puts the answer there.
    pub(crate) fn fill(&self, reply: Reply) {
        *self.reply.lock() = Some(reply);
        self.filled.notify_one();
    }

    /// Waits for the answer until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> Option<Reply> {
        let mut reply = self.reply.lock();
        while reply.is_none() {
            if self.filled.wait_until(&mut reply, deadline).timed_out() {
                break;
            }
        }
        reply.take()
    }
}

/// Brings an answer to whoever asked.
pub(crate) fn deliver(origin: Origin, reply: Reply, stage: Stage) {
    match origin {
        Origin::Connection(outbox, wire) => outbox.reply(wire, &fitting(reply), stage),
        // Whoever no longer listens needs no answer.
        Origin::Task(tell) => drop(tell.send(reply)),
        Origin::Thread(slot) => slot.fill(reply),
    }
}

/// A page of keys that a frame could not hold is cut: the asker continues after its last key.
fn fitting(reply: Reply) -> Reply {
    match reply {
        Reply::Listed { keys, .. } if keys.packed().len() > PAGE_BYTES_MAX => {
            let mut cut = Keys::new();
            for key in keys.iter() {
                if cut.packed().len() + key.len() > PAGE_BYTES_MAX || cut.push(key).is_err() {
                    break;
                }
            }
            Reply::Listed {
                keys: cut,
                more: true,
            }
        }
        reply => reply,
    }
}

/// The answer of a master that stops.
pub(crate) fn closed(stage: Stage) -> Failure {
    Failure::new(
        Code::UnavailableInStatus,
        stage,
        "the master is shutting down",
    )
}

/// The answer at the deadline.
pub(crate) fn late(stage: Stage) -> Failure {
    Failure::new(
        Code::RpcTimeout,
        stage,
        "the master had no answer within the deadline",
    )
}

/// Where in an operation a failure of this request arises.
pub(crate) fn stage_of(request: &Request) -> Stage {
    match request {
        Request::Reserve { .. } | Request::Cancel { .. } => Stage::Reserve,
        Request::Locate { .. } | Request::Exists { .. } => Stage::Locate,
        _ => Stage::Session,
    }
}
